"""A figure as one HTML file that needs nothing else: the player and its data are in it, and nothing may be fetched."""

from __future__ import annotations

import html
import json

from flashkit.figures.figure import Figure
from flashkit.figures.poster import image_element
from flashkit.figures.script import PLAYER, script

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; }}
h1 {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }}
main {{ max-width: 960px; margin: 16px auto; }}
img {{ max-width: 100%; }}
</style>
</head>
<body>
<main id="figure"><h1>{title}</h1><noscript>{poster}</noscript></main>
<script type="module">
{player}
const DATA = {data};
render({{ model: {{ get: (name) => ({{ data: DATA }})[name] }}, el: document.getElementById("figure") }});
</script>
</body>
</html>
"""


def page(figure: Figure) -> str:
    """The page's text. It starts by itself, unless the reader asked for reduced motion."""
    data = json.dumps(figure.data(autoplay=True), ensure_ascii=False, separators=(",", ":"))
    return PAGE.format(
        policy=POLICY,
        title=html.escape(figure.scene.title),
        poster=image_element(figure.poster, figure.alt),
        player=script(PLAYER),
        data=data.replace("</", "<\\/").replace("<!--", "<\\!--"),
    )
