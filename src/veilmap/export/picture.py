"""A picture with one pixel a cell, a world file that places it, and a legend."""

from contextlib import ExitStack
from pathlib import Path
from xml.sax.saxutils import escape

from veilmap._util import files
from veilmap.export.written import Written
from veilmap.layers import Layer


def write(layer: Layer, path: Path) -> Written:
    """Write NAME.png, NAME.pgw and NAME-legend.png, and what tells GDAL the coordinate system."""
    from veilmap.figures.rasters import save_layer_image, save_layer_legend

    grid = layer.grid
    # A world file: a pixel's size and turn, and where the centre of the north-western one is.
    place = (grid.cell_size, 0.0, 0.0, -grid.cell_size, grid.x[0], grid.y[-1])
    texts = {path.with_suffix(".pgw"): "".join(f"{float(number)!r}\n" for number in place)}
    if grid.crs is not None:
        system = f"<PAMDataset>\n  <SRS>{escape(grid.crs)}</SRS>\n</PAMDataset>\n"
        texts[path.with_name(f"{path.name}.aux.xml")] = system
    legend = path.with_name(f"{path.stem}-legend.png")
    with ExitStack() as all_or_none:
        # All are written before the first takes its place.
        picture, key, *others = (
            all_or_none.enter_context(files.replacing(file)) for file in (path, legend, *texts)
        )
        save_layer_image(layer, picture)
        save_layer_legend(layer, key)
        for temporary, text in zip(others, texts.values(), strict=True):
            temporary.write_text(text, encoding="utf-8")
    return Written((path, legend, *texts))
