"""Open a page in a headless browser at a given width, act on it and measure it."""

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
# The page is in a frame, because a headless window cannot be as narrow as a telephone.
FRAME = """<!doctype html><body style="margin:0">
<iframe style="border:0;width:{width}px;height:3000px" srcdoc="{page}"></iframe>
<pre></pre><script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {{
  const wait = setInterval(() => {{
    const page = frame.contentDocument, figures = page.querySelectorAll(".figure");
    if ([...figures].some(figure => !figure.classList.contains("alive"))) return;
    clearInterval(wait);
    const result = (() => {{ {script} }})();
    document.querySelector("pre").textContent = "MEASURED" + btoa(JSON.stringify(result)) + "END";
  }}, 100);
}});
</script>"""
# what reaches beyond the page's edge outside of a box that scrolls, the sizes of letters in
# charts as drawn, and how much wider than itself each chart's box is
LAYOUT = """
const width = page.documentElement.clientWidth, beyond = [], sizes = [], charts = [];
const style = part => frame.contentWindow.getComputedStyle(part);
for (const part of page.body.querySelectorAll("*")) {
  const box = part.getBoundingClientRect();
  if (!part.closest(".wide, .live, details") && box.width && box.right > width + 1)
    beyond.push(part.tagName + "." + part.className);
}
for (const svg of page.querySelectorAll(".live svg.marks")) {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  for (const text of svg.querySelectorAll("text"))
    if (text.textContent) sizes.push(parseFloat(style(text).fontSize) * scale);
  const live = svg.closest(".live");
  charts.push([svg.getBoundingClientRect().width, live.clientWidth, live.scrollWidth]);
}
const scroll = page.documentElement.scrollWidth - width;
return {beyond, smallest: Math.min(...sizes), charts, scroll};
"""


def measure_page(page: str, width: int, script: str, folder: Path) -> Any:
    """Return what a script says about a page of this width, after its figures are drawn."""
    file = folder / f"frame{width}.html"
    text = FRAME.format(width=width, page=html.escape(page), script=script)
    file.write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions"]
    options += ["--no-first-run", "--disable-background-networking", "--disable-sync"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=60000"]
    options += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,3000", "--dump-dom"]
    command = [str(CHROMIUM), *options, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    answer = re.search(r"MEASURED([\w+/=]*)END", done.stdout)
    assert answer, done.stderr[-2000:]
    return json.loads(base64.b64decode(answer[1]))
