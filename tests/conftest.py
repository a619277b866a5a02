import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the commands that tests start; before torch reads it

import torch

torch.set_num_threads(1)  # the models of the tests are so small that a second thread only waits
