import torch

torch.set_num_threads(1)  # the models of the tests are so small that a second thread only waits
