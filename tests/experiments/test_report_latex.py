"""The LaTeX tables are whole, and show texts as they are."""

import re
import shutil
import subprocess

import pytest

from experiments.report import latex as report_latex
from experiments.report import tables
from tests.experiments.evaluation_rows import cells_of, scored

pytestmark = pytest.mark.fast


@pytest.fixture
def cells():
    """Two tasks of two levels; one of 3 seeds in two settings, one with odd names."""
    seeds = [
        scored(f"{positions}{seed}", right + 5 * seed, positions=positions, seed=seed)
        for positions, right in (("consecutive", 50), ("randomized", 85))
        for seed in range(3)
    ]
    odd = {"task": "a_b", "task_title": "[A_B] & 50%", "input_blind": 0.9}
    more = {"encoding": "e(x=1)", "encoding_title": "É^2 (x_1 ~ {2}\\ θ)"}
    return cells_of(*seeds, scored("x", 91, **odd), scored("y", 92, **odd, **more))


def _rows(text):
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    return [line.strip() for line in body.strip().split("\n")]


def test_the_best_scores_stand_in_rows_under_their_levels(cells):
    text = report_latex.matrix(cells, tables.best_text, "All #1", "tab:x")
    assert _rows(text) == [
        r"\multicolumn{5}{l}{\emph{Deterministic context-free}} \\",
        r"Reverse String & 50.0 & 60.0 & -- & \textbf{95.0} \\",
        r"\addlinespace",
        r"\multicolumn{5}{l}{\emph{Other tasks}} \\",
        r"{}[A\_B] \& 50\% & 90.0 & 91.0 & 92.0 & -- \\",  # of one seed each
    ]
    assert r"\caption{All \#1}" in text
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"\multicolumn{2}{c}{consecutive} & \multicolumn{1}{c}{randomized}" in text
    assert r"\cmidrule(lr){3-4}\cmidrule(lr){5-5}" in text


def test_means_and_intervals_stand_below_the_best(cells):
    text = report_latex.matrix(cells, tables.best_and_mean_text, "", "tab:x")
    rows = _rows(text)
    assert rows[1:5] == [
        r"Reverse String & 50.0 & 60.0 & -- & \textbf{95.0} \\",
        r"&  & {\scriptsize 55.0} &  & {\scriptsize 90.0} \\",
        r"&  & {\scriptsize [50.0, 60.0]} &  & {\scriptsize [85.0, 95.0]} \\",
        r"\addlinespace[2pt]",
    ]
    # one run has no interval: two rows
    assert rows[7].startswith(r"{}[A\_B]")
    assert rows[8] == r"&  & {\scriptsize 91.0} & {\scriptsize 92.0} &  \\"
    assert rows[9] == r"\addlinespace[2pt]"


def test_all_rows_have_all_columns_and_all_braces_are_closed(cells):
    text = report_latex.document(cells)
    plain = re.sub(r"\\[{}&%#_]", "", text)
    assert plain.count("{") == plain.count("}")
    assert text.count(r"\begin{") == text.count(r"\end{") == 4
    for table in text.split(r"\midrule")[1:]:
        body = re.sub(r"\\[&]", "", table.split(r"\bottomrule")[0])
        counts = {
            line.count("&")
            for line in body.split("\n")
            if line.endswith(r"\\") and "multicolumn" not in line
        }
        assert counts == {4}


def test_long_names_over_columns_are_broken_and_wide_tables_shrunk():
    cells = cells_of(
        scored("a", 50),
        scored("b", 50, positions="randomized", test_positions="evenly_spaced"),
    )
    text = report_latex.matrix(cells, tables.best_text, "", "tab:x")
    assert r"\multicolumn{1}{c}{consecutive}" in text
    said = r"\shortstack{randomized,\\ tested with evenly spaced}"
    assert rf"\multicolumn{{1}}{{c}}{{{said}}}" in text
    assert r"\resizebox{\ifdim\width>\linewidth" in text


@pytest.mark.parametrize(
    ("plain", "written"),
    [
        ("\\~^{}", r"\textbackslash{}\textasciitilde{}\textasciicircum{}\{\}"),
        ("50% & $5 #1 a_b", r"50\% \& \$5 \#1 a\_b"),
        ("1–40 ≥ ± −2", r"1--40 $\geq$ $\pm$ $-$2"),
        ("<x|y>", r"$<$x$|$y$>$"),
        ("θ→∞, λ²", r"$\theta$$\to$$\infty$, $\lambda$$^2$"),
    ],
)
def test_what_latex_would_read_is_shown(plain, written):
    assert report_latex.text(plain) == written


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no pdflatex")
def test_the_tables_compile(cells, tmp_path):
    (tmp_path / "scores.tex").write_text(report_latex.document(cells))
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs,graphicx}"
        r"\begin{document}\input{scores.tex}\end{document}"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "LaTeX Warning: Reference" not in done.stdout
