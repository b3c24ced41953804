"""The world outside: a real year of flights and weather, played into the landing area. Delete it when you have data of your own."""
