"""Reads tables of labelled examples, a row at a time, from files, standard input or the `datasets` library.

In: a source and how it is written. Out: a Table, which knows its columns when it is open and gives its rows each time
it is asked, in constant memory (but for JSON documents, see `json_rows`). What the columns mean is left
to the tasks.

| format | file names | a row |
|---|---|---|
| csv | .csv | cells with a comma between them, in quotes where needed; the first line has the names |
| tsv | .tsv .tab | cells with a tab between them; quotes are text |
| jsonl | .jsonl .ndjson | an object a line |
| json | .json | SQuAD, or a list of objects, or an object with such a list as field `data`, or JSON lines |
| squad | | a question: id, context, question, answers (each text and start), impossible; None is what is not told |
| parquet | .parquet | all columns |
| conll | .conll .conllu .bio .iob | a sentence: a list for each column; tokens are the first, tags the last |

Each name may have .gz .xz .zst or .bz2 behind it. Text is decoded as all of segue's is (`segue.data.decode`). Values
keep their types: text from csv, tsv and conll, and what the file says from the others.

`table` opens them; `reader` is what all formats share; `cells` csv and tsv, `json_rows` JSON (`choices` for multiple
choice), `conll`, `parquet`, `datasets` the rest.
"""

from segue.data.tables.cells import DelimiterError as DelimiterError
from segue.data.tables.datasets import DATASETS as DATASETS
from segue.data.tables.reader import Record as Record
from segue.data.tables.reader import Row as Row
from segue.data.tables.reader import Unread as Unread
from segue.data.tables.table import ENDINGS as ENDINGS
from segue.data.tables.table import FORMATS as FORMATS
from segue.data.tables.table import STANDARD_INPUT as STANDARD_INPUT
from segue.data.tables.table import Table as Table
from segue.data.tables.table import TableFormat as TableFormat
from segue.data.tables.table import TableSettings as TableSettings
from segue.data.tables.table import find_column as find_column
from segue.data.tables.table import open_table as open_table
from segue.data.tables.table import side_by_side as side_by_side
