"""Fair scheduling: tenants take turns, however many requests each of them has."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A queue for each tenant, served round-robin: next is the first item of the tenant that has waited longest."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[T]:
        """Iterate over all items, tenant by tenant."""
        for queue in self._queues.values():
            yield from queue

    def add(self, tenant: str, one: T) -> None:
        """Append an item to the queue of its tenant."""
        self._queues.setdefault(tenant, deque()).append(one)

    def pop(self) -> T:
        """Remove and return the next item; its tenant is then the last in turn."""
        tenant, queue = next(iter(self._queues.items()))
        one = queue.popleft()
        if queue:
            self._queues.move_to_end(tenant)
        else:
            del self._queues[tenant]
        return one

    def take(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove and return all items for which `wanted` is true."""
        taken: list[T] = []
        for tenant in list(self._queues):
            queue = self._queues[tenant]
            if any(wanted(one) for one in queue):
                taken += [one for one in queue if wanted(one)]
                self._queues[tenant] = deque(one for one in queue if not wanted(one))
                if not self._queues[tenant]:
                    del self._queues[tenant]
        return taken
