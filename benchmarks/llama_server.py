"""llama.cpp's server, from the package xllamacpp, with new weights; runs in an environment of its own.

    .venv-llama/bin/python -m benchmarks.llama_server --layers 3 --width 256 --context 66000 --slots 2 --folder FOLDER

Writes a model of the llama family as GGUF, float32, serves it on a free port, prints the address and serves until its
standard input ends. With an inner width of (width + 2 * inner width) / 3 it has as many weights as a Transformer-XL of
the same layers, width and vocabulary: four matrices of attention and three of the inner layer, instead of five and two.
"""

import argparse
import sys
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

_BYTES, _UNKNOWN, _CONTROL, _NORMAL = 6, 2, 3, 1


def equal_inner_width(width: int, inner_width: int) -> int:
    """Return the inner width with which it has as many weights as a Transformer-XL of this shape, without biases and
    norms."""
    return (width + 2 * inner_width) // 3


def write_model(
    path: Path, *, layers: int, width: int, heads: int, inner_width: int, vocabulary: int, context: int, spread: float
) -> int:
    """Write new weights with a vocabulary of words; return the number of weights."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner_width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(vocabulary)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [f"\u2581w{number}" for number in range(vocabulary - len(pieces))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece.encode() for piece in pieces])
    writer.add_token_scores([-float(number) for number in range(vocabulary)])
    writer.add_token_types([_UNKNOWN, _CONTROL, _CONTROL, *[_BYTES] * 256, *[_NORMAL] * (vocabulary - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    numbers = _add_weights(writer, layers=layers, width=width, inner_width=inner_width, rows=vocabulary, spread=spread)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return numbers


def _add_weights(
    writer: gguf.GGUFWriter, *, layers: int, width: int, inner_width: int, rows: int, spread: float
) -> int:
    chance, numbers = np.random.default_rng(0), 0

    def add(name: str, *shape: int) -> None:
        nonlocal numbers
        ones = len(shape) == 1
        values = np.ones(shape) if ones else chance.standard_normal(shape) * spread
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))
        numbers += values.size

    add("token_embd", rows, width)
    add("output_norm", width)
    for layer in range(layers):
        for norm in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{norm}", width)
        for matrix in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{matrix}", width, width)
        for matrix in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{matrix}", inner_width, width)
        add(f"blk.{layer}.ffn_down", width, inner_width)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("layers", 3), ("width", 256), ("heads", 4), ("inner-width", 1024), ("vocabulary", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--context", type=int, default=2048, help="tokens of a slot")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--spread", type=float, default=0.02, help="standard deviation of the weights")
    parser.add_argument("--whole-cache", action="store_true", help="a cache in float32; its default is float16")
    parser.add_argument("--folder", type=Path, required=True, help="for the model and the saved slots")
    options = parser.parse_args()
    saved = options.folder / "slots"
    saved.mkdir(parents=True, exist_ok=True)
    path = options.folder / "model.gguf"
    numbers = write_model(
        path,
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        inner_width=equal_inner_width(options.width, options.inner_width),
        vocabulary=options.vocabulary,
        context=options.context,
        spread=options.spread,
    )
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = options.context * options.slots, options.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.endpoint_slots, params.slot_save_path = True, f"{saved}/"
    params.port, params.warmup, params.ctx_shift, params.verbosity = 0, False, False, 0
    if options.whole_cache:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(params)
    print(f"parameters {numbers}", flush=True)
    print(f"serving on {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
