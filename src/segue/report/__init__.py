"""Pages for people: charts as SVG, and blocks of text, tables and pictures as HTML and markdown."""
