"""How the models that come with segue are made: their corpora and their training, as commands that anyone can run."""
