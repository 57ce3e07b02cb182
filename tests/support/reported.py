"""Pages of reports, read as a browser would."""

from html.parser import HTMLParser

from veilmap import figures

NO_END = {"meta", "img"}


class Page(HTMLParser):
    """What a page holds: its elements, tables by caption, and the text."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements, self.tables, self.words = [], {}, []
        self._open, self._cells, self._rows = [], [], []
        self.feed(self.source)
        assert self._open == []  # everything that begins also ends

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def every(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in NO_END:
            self._open.append(tag)
        if tag == "tr":
            self._cells = []

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag == "tr":
            self._rows.append(self._cells)
        elif tag == "table":
            self.tables[self._caption] = self._rows
            self._rows = []

    def handle_data(self, data):
        if "style" in self._open:
            return
        self.words.append(data)
        if self._open and self._open[-1] in ("th", "td"):
            self._cells.append(data)
        elif "caption" in self._open:
            self._caption = data


def undrawn(picture):
    """The size of a picture as a PNG file begins with it: drawing takes most of a page's time."""
    width, height = (int(150 * inches) for inches in figures.draw(picture).get_size_inches())
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4) + height.to_bytes(4)
