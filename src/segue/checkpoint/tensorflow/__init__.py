"""TensorFlow V2 checkpoints, read and written without TensorFlow."""

from segue.checkpoint.tensorflow.read import TensorflowCheckpoint, open_tensorflow
from segue.checkpoint.tensorflow.write import write_tensorflow

__all__ = ["TensorflowCheckpoint", "open_tensorflow", "write_tensorflow"]
