"""The history of a fit with Lightning: an entry for each epoch, and by name the metrics that the last one logged."""

from typing import Any, Dict, ItemsView, KeysView, List, ValuesView


class History(List[Dict[str, Any]]):
    """The list of the epochs' entries. Programs for Horovod, whose history is a dict, ask it for a metric by name."""

    def _last(self) -> Dict[str, float]:
        return list.__getitem__(self, -1)["metrics"] if self else {}

    def __getitem__(self, key: Any) -> Any:
        return self._last()[key] if isinstance(key, str) else super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        return key in self._last() if isinstance(key, str) else super().__contains__(key)

    def get(self, name: str, default: Any = None) -> Any:
        return self._last().get(name, default)

    def keys(self) -> KeysView[str]:
        return self._last().keys()

    def values(self) -> ValuesView[float]:
        return self._last().values()

    def items(self) -> ItemsView[str, float]:
        return self._last().items()
