"""The HTML page is whole, loads nothing, and says what the tables say."""

import base64
import html.parser
import json

import pytest

from experiments.report import data as report_data
from experiments.report import html as report_html
from experiments.report import tables
from tests.experiments.evaluation_rows import scored, store

# a PNG's signature, then its first chunk: 1000 dots wide, 50 high
PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (1000).to_bytes(4) + (50).to_bytes(4)
VOID = {"meta", "img", "wbr", "br", "link", "input", "hr"}


class _Page(html.parser.HTMLParser):
    """Checks that tags close in order, and keeps rows, texts and addresses."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.addresses, self.ids, self.rows = [], [], [], []
        self.texts = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in {"src", "href", "action", "data", "srcset", "poster"}:
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        self.texts[self.open[-1] if self.open else ""] = (
            self.texts.get(self.open[-1] if self.open else "", "") + data
        )


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    odd = {"task_title": "<script>x</script> & co", "task": "a_b"}
    groups = [
        scored(f"{p}{seed}", right + 10 * seed, positions=p, seed=seed)
        for p, right in (("consecutive", 50), ("randomized", 80))
        for seed in (0, 1)
    ]
    groups = [*groups, scored("odd", 60, **odd), scored("late", 9, seed=2, step=7)]
    configs = {
        group[0]["run_id"]: {
            "train": {"seed": group[0]["seed"], "keep": 7 + group[0]["seed"]},
            "model": {"num_layers": 3, "pattern": "<b>"},
        }
        for group in groups
    }
    store(folder, *groups, configs=configs)
    for name in ("run_b", "run_a"):
        analysis = folder / "runs" / name / "analysis"
        analysis.mkdir(parents=True)
        about = {"title": "RoPE & co", "step": 7}
        text = json.dumps(about) if name == "run_a" else "{"
        (analysis / "analysis.json").write_text(text)
        (analysis / "attention_entropy.png").write_bytes(PICTURE)
        (analysis / "attention_entropy.tmp.png").write_bytes(b"half")
    with (folder / "results" / "torn.jsonl").open("w") as file:
        file.write('{"kind": "evalua')
    return report_data.gather(folder)


@pytest.fixture(scope="module")
def text(report):
    return report_html.page(report, {"score_heatmap": PICTURE})


def test_every_tag_is_closed_and_every_link_leads_within_the_page(text):
    page = _Page(text)
    links = [address for address in page.addresses if address.startswith("#")]
    assert {link[1:] for link in links} == set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_loaded_from_anywhere(text):
    page = _Page(text)
    others = [address for address in page.addresses if not address.startswith("#")]
    picture = "data:image/png;base64," + base64.b64encode(PICTURE).decode()
    assert others == [picture] * 3  # one of the report, one of each analysis
    assert 'width="600"' in text
    for word in ("http:", "https:", "//", "url(", "@import", "import(", "fetch("):
        assert word not in text.replace(others[0], ""), word


def test_names_from_outside_are_shown_and_not_run(text):
    assert text.count("<script>") == 1
    assert "&lt;script&gt;x&lt;/script&gt; &amp; co" in text
    assert "&lt;b&gt;" in text


def test_the_table_has_best_mean_interval_and_baseline(text):
    page = _Page(text)
    (row,) = [r for r in page.rows if r[0] == "Reverse String" and len(r) == 4]
    assert row == [
        "Reverse String",
        "50.0",
        "60.055.0[50.0, 60.0]",
        "90.085.0[80.0, 90.0]",
    ]
    assert "<strong>90.0</strong>" in text
    assert "<td>60.0<small>60.0</small>" in text  # alone in its row


def test_every_run_is_there_with_seed_steps_score_and_what_varies(text, report):
    rows = {row[0]: row for row in _Page(text).rows}
    head = rows["Run"]
    run = dict(zip(head, rows["randomized1"], strict=True))
    assert run["Seed"] == "1"
    assert run["Steps"] == "100"
    assert run["Score"] == tables.percent(0.9)
    assert run["train.keep"] == "8"
    assert "model.num_layers" not in head
    assert rows["model.num_layers"] == ["model.num_layers", "3"]
    assert "late" not in rows
    assert len(report.runs) == 5


def test_what_was_left_out_and_damaged_is_said(text):
    assert "steps trained 7, not 100 (late)" in text
    assert "torn.jsonl, line 1 is not a row" in text
    assert "RoPE, randomized: no run on &lt;script&gt;" in text


def test_published_figures_have_their_standing_beside_them(text):
    rows = [row for row in _Page(text).rows if "Ruoss" in " ".join(row)]
    assert len(rows) == 2
    assert {row[6] for row in rows} == {"unverified"}
    assert '<span class="unverified">unverified</span>' in text


def test_the_analysis_of_each_run_is_shown_under_its_name(text):
    first = "<details open><summary>run_a: RoPE &amp; co, step 7</summary><figure>"
    assert f'{first}<img alt="attention entropy"' in text
    assert "<details><summary>run_b</summary><figure>" in text
