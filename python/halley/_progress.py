"""Progress bars by tqdm, which is an optional dependency."""
from collections.abc import Callable


def progress_bar(total: float, label: str, use_tqdm: bool) -> Callable[[float], object]:
    """A function to call with the work that is done so far; it draws nothing without tqdm."""
    if not use_tqdm:
        return lambda done: None
    try:
        from tqdm.auto import tqdm  # it takes a part of a second
    except ImportError:
        return lambda done: None
    bar = tqdm(total=total, desc=label, leave=False)

    def show(done: float) -> None:
        bar.update(done - bar.n)
        if done >= total:
            bar.close()
    return show
