"""The demo's data: a real year of flights and weather, which lands hour by hour.

Delete this folder when you have data of your own.
"""
