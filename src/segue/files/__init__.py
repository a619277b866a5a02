"""Atomic writing of files and folders, and the rule of what may be replaced.

Every file and folder that segue writes goes through here: it is written beside its final path, synced, then renamed.

The rule: nothing is deleted or overwritten that segue did not write, and no input of the command.

- An existing file is replaced only if that is requested (`--replace`).
- An existing folder is replaced only if that is requested, if its manifest says that segue wrote a folder of the same
  kind there, and if nothing else is in it: each file is listed, and unchanged since it was written.
- Links, devices and mount points are never replaced, nor the current folder, the home folder, or one above them.
"""

from segue.files.folders import Fill as Fill
from segue.files.folders import Place as Place
from segue.files.folders import Staging as Staging
from segue.files.folders import locate as locate
from segue.files.folders import manifest_text as manifest_text
from segue.files.folders import remove_folder as remove_folder
from segue.files.folders import settle as settle
from segue.files.folders import staging_folder as staging_folder
from segue.files.folders import sweep as sweep
from segue.files.folders import write_folder as write_folder
from segue.files.rule import MANIFEST as MANIFEST
from segue.files.rule import Kind as Kind
from segue.files.rule import check_file as check_file
from segue.files.rule import check_folder as check_folder
from segue.files.rule import is_plain as is_plain
from segue.files.rule import is_written as is_written
from segue.files.single import file_identity as file_identity
from segue.files.single import make_folder_of as make_folder_of
from segue.files.single import new_file as new_file
from segue.files.single import new_text_file as new_text_file
from segue.files.single import sha256 as sha256
from segue.files.single import sync as sync
from segue.files.single import unwritable as unwritable
from segue.files.single import write_file as write_file
