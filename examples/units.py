"""A module as it might have been there for years: plain functions, no import of the toolkit.

`existing_functions.py` lets a model call them.
"""

from enum import Enum


class Scale(Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


def convert_temperature(degrees: float, to: Scale = Scale.FAHRENHEIT) -> float:
    """Convert a temperature between Celsius and Fahrenheit, whenever it is asked for in the other scale.

    :param degrees: The temperature in the other scale.
    :param to: The scale that is wanted.
    """
    return degrees * 9 / 5 + 32 if to is Scale.FAHRENHEIT else (degrees - 32) * 5 / 9


def split_bill(total: float, people: int, tip_percent: float = 10) -> float:
    """What each person pays.

    Parameters
    ----------
    total : float
        The sum on the bill.
    people : int
        How many share it.
    tip_percent : float
        The tip in percent.
    """
    return round(total * (1 + tip_percent / 100) / people, 2)
