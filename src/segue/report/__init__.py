"""Report pages: charts as SVG, and blocks of text, tables and pictures as HTML and markdown."""
