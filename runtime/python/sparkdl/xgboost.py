"""Names of Databricks' sparkdl.xgboost, which its runtimes have no more: XGBoost itself has them now."""

from typing import Any


class _Moved:
    """_Moved is a class of XGBoost that is made from another module."""

    _place = ""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        name = f"sparkdl.xgboost.{type(self).__name__}"
        raise NotImplementedError(f"{name} is {self._place} of the package xgboost now")


class XgboostRegressor(_Moved):
    """Refused, with where it is."""

    _place = "xgboost.spark.SparkXGBRegressor"


class XgboostClassifier(_Moved):
    """Refused, with where it is."""

    _place = "xgboost.spark.SparkXGBClassifier"
