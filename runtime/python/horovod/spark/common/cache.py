"""Which frames prepare_data() has written, and where: each place in the store has a number.

A place that nobody uses is given to the next frame. Until then its data is used again for the frame that it is of.
"""

import contextlib
import threading
from typing import Any, Dict, Iterator, Tuple

Key = Tuple[Any, ...]


class TrainingDataCache:
    """Horovod's name. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key_to_dataset: Dict[Key, int] = {}
        self._users: Dict[int, int] = {}
        self._contents: Dict[int, Tuple[Any, Dict[str, Any]]] = {}

    def create_key(self, df: Any, store: Any, validation: Any) -> Key:
        """It holds the frame itself, so that another one cannot have its number."""
        return id(df), store.prefix_path, validation, _Held(df)

    def is_cached(self, key: Key, store: Any) -> bool:
        """Whether the frame's data still stands in the store."""
        place = self._key_to_dataset.get(key)
        if place is None or place not in self._contents:
            return False
        return store.exists(f"{self._contents[place][0].path}/train")

    def get_dataset(self, key: Key) -> int:
        """The number of a frame's place. KeyError: it has none."""
        return self._key_to_dataset[key]

    def set_dataset(self, key: Key, prepared: Any, metadata: Dict[str, Any]) -> None:
        """What now stands at the place of a key that is in use."""
        self._contents[self._key_to_dataset[key]] = prepared, metadata

    def at(self, place: int) -> Tuple[Any, Dict[str, Any]]:
        """What set_dataset() was told of a place. ValueError: nothing."""
        if place not in self._contents:
            raise ValueError(f"there is no data with the number {place}; prepare_data() gives the numbers")
        return self._contents[place]

    @contextlib.contextmanager
    def use(self, key: Key) -> Iterator[int]:
        """Keeps the key's place while the context lasts; a new key gets the first place that nobody uses."""
        with self._lock:
            place = self._key_to_dataset.get(key)
            if place is None:
                place = next(number for number in range(len(self._users) + 1) if not self._users.get(number))
                self._key_to_dataset = {other: number for other, number in self._key_to_dataset.items() if number != place}
                self._key_to_dataset[key] = place
                self._contents.pop(place, None)
            self._users[place] = self._users.get(place, 0) + 1
        try:
            yield place
        finally:
            with self._lock:
                self._users[place] -= 1

    def clear(self) -> None:
        """Forgets all, but for who uses which place."""
        with self._lock:
            self._key_to_dataset.clear()
            self._contents.clear()


class _Held:
    """Equal for the same object, whatever that thinks of equality."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Held) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)
