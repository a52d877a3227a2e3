"""What frameworks make tools and forms of: a function and a class."""
from pydantic import BaseModel

from checks import CITY, WEATHER


class Peak(BaseModel):
    """A mountain."""
    name: str
    height: int


def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: the city
    """
    return WEATHER if city == CITY else "unknown"
