"""The demo's data: a real year of flights and weather, played into the landing area.

Delete this folder when you have data of your own.
"""
