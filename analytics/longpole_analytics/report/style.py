"""The style sheet of a report: light and dark by what the reader's system asks for, and print."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--text:#1d2126;--quiet:#5b6570;--back:#fff;--line:#d9dee3;
--code:#f3f5f7;--link:#1a5fb4}
@media (prefers-color-scheme:dark){:root{--text:#e6e9ec;--quiet:#9aa4ae;--back:#14171a;
--line:#343b42;--code:#1f2429;--link:#8ab4f8}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:72rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;margin:0 0 .25rem}
h2{font-size:1.1rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
p{margin:.4rem 0;overflow-wrap:anywhere}
li{margin:.2rem 0;overflow-wrap:anywhere}
.quiet{color:var(--quiet)}
.wide{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.9rem}
caption{text-align:left;color:var(--quiet);padding:.2rem 0}
th,td{text-align:left;vertical-align:top;padding:.25rem .7rem .25rem 0;
border-bottom:1px solid var(--line);overflow-wrap:anywhere}
td{min-width:4.5em;max-width:24rem}
th{overflow-wrap:normal;color:var(--quiet);font-weight:600}
.n{text-align:right;white-space:nowrap}
pre{background:var(--code);padding:.5rem .7rem;border-radius:4px;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.8rem;margin:.8rem 0 0}
code{font-size:.85em}
a{color:var(--link)}
figure{margin:.8rem 0}
figcaption{color:var(--quiet);margin-bottom:.3rem;overflow-wrap:anywhere}
.chart{width:100%;height:auto;display:block;font-size:12px}
.chart text{fill:var(--text);white-space:pre}
.chart .pale{opacity:.45}
.chart .path{stroke:var(--text);stroke-width:1.2}
.keys{display:flex;flex-wrap:wrap;gap:.2rem .9rem;color:var(--quiet);font-size:.8rem;
margin-top:.3rem}
.key{display:inline-flex;align-items:center;gap:.3rem}
@media print{:root{--text:#000;--quiet:#444;--back:#fff;--line:#bbb;--code:#f3f3f3;--link:#000;
color-scheme:light}
main{max-width:none;padding:0}body{font-size:11px}.wide{overflow:visible}
section,figure,tr{break-inside:avoid}h2{break-after:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
