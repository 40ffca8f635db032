"""Two processes use the same checkpoint, or none, whatever one of them sees."""

import pytest

from tests.experiments.process_pair import free_port, start


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What both processes of `checkpoint_pair` printed, by its headings."""
    folder = tmp_path_factory.mktemp("pair")
    words = ["tests/training/checkpoint_pair.py", f"127.0.0.1:{free_port()}"]
    own = [(str(number), str(folder / "checkpoints")) for number in (0, 1)]
    with start(words, folder / "logs", own) as pair:
        codes = pair.wait(400)
    texts = pair.said()
    assert codes == [0, 0], "\n".join(texts)
    return [sections(text) for text in texts]


OURS = ("warning: ", "step", "refused ", "texts ")
"""How lines begin that are the program's; the network's library writes others."""


def sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            found[line[2:]] = here = []
        elif found and line.startswith(OURS):
            here.append(line)
    return found


def test_what_one_cannot_read_none_uses(said):
    for lines in (one["one process cannot read the newest"] for one in said):
        warned, step, steps = lines
        assert "/4 is damaged (process 1: " in warned
        assert "99/about/metadata" in warned
        assert step == "step 3 True"
        assert steps == "steps [1, 2, 3]"  # 4 was set aside


def test_a_flipped_bit_in_an_array_of_many_processes_is_seen(said):
    """Each holds a part of it, so none could tell by itself."""
    for lines in (one["a file of the newest has changed by a bit"] for one in said):
        warned, step = lines
        assert "/4 is damaged (" in warned
        assert step == "step 3 True"


def test_another_model_in_one_process_is_refused_by_all(said):
    for lines in (one["one process has another model"] for one in said):
        (refused,) = lines
        assert "params/kernel: float32[64, 64] there, float32[64, 128] here" in refused


def test_a_checkpoint_that_one_does_not_see_is_not_used(said):
    for one in said:
        step, texts = one["one process does not see the newest"]
        assert step == "step 2"
        assert texts == "texts True"
