"""Tables of labelled examples, read a row at a time, from files, standard input or the `datasets` library.

In: a source and its format. Out: a Table, which knows its columns when it is open and yields its rows each time it is
iterated, in constant memory (except for JSON documents, see `json_rows`). The meaning of the columns is left to the
tasks.

| format | file names | a row |
|---|---|---|
| csv | .csv | cells separated by commas, in quotes where needed; the first line has the names |
| tsv | .tsv .tab | cells separated by tabs; quotes are text |
| jsonl | .jsonl .ndjson | one object per line |
| json | .json | SQuAD, or a list of objects, or an object with such a list as field `data`, or JSON lines |
| squad | | a question: id, context, question, answers (each text and start), impossible; None if missing |
| parquet | .parquet | all columns |
| conll | .conll .conllu .bio .iob | a sentence: a list for each column; tokens are the first, tags the last |

Each name may be followed by .gz .xz .zst or .bz2. Text is decoded as everywhere in segue (`segue.data.decode`). Values
keep their types: text from csv, tsv and conll, and the types of the file from the others.

`table` opens tables; `reader` is shared by all formats; `cells` reads csv and tsv, `json_rows` JSON (`choices` for
multiple choice), `conll`, `parquet`, `datasets` the rest.
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
