"""The style of the HTML page, and the script that sorts its tables."""

STYLE = """
:root { color-scheme: light; --rule: #c8c8c8; --soft: #f4f4f4; --link: #00568a; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 84rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .6rem; border-bottom: 1px solid var(--rule); }
nav a { color: var(--link); margin-right: 1rem; white-space: nowrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: .87rem; }
caption, figcaption { text-align: left; color: #444; font-size: .87rem;
  max-width: 60rem; padding: .3rem 0; }
th, td { padding: .2rem .6rem; text-align: right; vertical-align: top; }
th { font-weight: 600; }
thead { border-top: 2px solid #333; border-bottom: 1px solid #333; }
tbody:last-of-type { border-bottom: 2px solid #333; }
tbody tr:nth-child(even) { background: var(--soft); }
td, tbody th { white-space: nowrap; }
.text, tbody th { text-align: left; font-weight: normal; }
td.text:not(:first-child) { white-space: normal; }
thead th { vertical-align: bottom; }
thead th.text { font-weight: 600; }
.paper th, .paper td { padding: .15rem .4rem; }
.level { font-style: italic; padding-top: .7rem; background: #fff; }
td small { display: block; color: #555; }
.over { text-align: center; border-bottom: 1px solid var(--rule); }
.sortable thead th { cursor: pointer; }
.read, .secondary, .unverified { padding: 0 .4rem; border-radius: .3rem; }
.read { background: #cfe8dc; } .secondary { background: #fbe7b2; }
.unverified { background: #f6d5c9; }
.notes { background: #fff7e0; border-left: 4px solid #e69f00;
  padding: .2rem 1rem; margin: 1rem 0; }
figure { margin: 1.2rem 0; } img { max-width: 100%; height: auto; }
details { margin: .5rem 0; } summary { cursor: pointer; }
code { font-size: .85rem; }
@media print { nav { display: none; } details > * { display: block; } }
"""
SCRIPT = """
for (const table of document.querySelectorAll("table.sortable"))
  table.tHead.addEventListener("click", event => {
    const head = event.target.closest("th");
    if (!head) return;
    const at = head.cellIndex, body = table.tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    const value = row => row.cells[at].textContent.trim().replace("\\u2212", "-");
    const compare = (a, b) => {
      const x = value(a), y = value(b), n = parseFloat(x) - parseFloat(y);
      return isNaN(n) ? x.localeCompare(y, undefined, {numeric: true}) : n;
    };
    const rows = [...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  });
"""
