"""Progress bars by tqdm, which is an optional dependency."""
from collections.abc import Callable


def progress_bar(total: int | None, label: str, use_tqdm: bool) -> Callable[[float], object]:
    """A function to call with the work that is done so far: of `total`, or None: its share, 0 to 1.
    It draws nothing without tqdm."""
    if not use_tqdm:
        return lambda done: None
    try:
        from tqdm.auto import tqdm  # it takes a part of a second
    except ImportError:
        return lambda done: None
    shape = "{l_bar}{bar}| [{elapsed}<{remaining}]" if total is None else None
    goal = 1 if total is None else total
    bar = tqdm(total=goal, desc=label, leave=False, bar_format=shape)

    def show(done: float) -> None:
        bar.update(done - bar.n)
        if done >= goal:
            bar.close()
    return show
