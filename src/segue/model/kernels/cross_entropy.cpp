// Logits in bfloat16 -> -log p(target) of each row, and in place of the logits the gradient of their weighted sum. See
// cross_entropy.py in the folder above for the definition. PyTorch needs a pass through memory for each operation and
// for each change of precision; here a row stays in the cache from its logits to its gradient.
//
// Sums are always computed in the same order, so results do not depend on the number of threads.

#include <cmath>
#include <cstdint>
#include <limits>

#include "lanes.h"

namespace {

using namespace segue;

typedef uint16_t halves __attribute__((vector_size(16)));
typedef uint16_t loose_halves __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(32)));

constexpr i64 WIDE = LANES<float>;
constexpr i64 COLUMNS = 1024;  // columns of the bias gradient that one thread sums at a time

inline float from_bfloat16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}
inline Vector<float> from_bfloat16(const uint16_t* p) {
  const halves x = *reinterpret_cast<const loose_halves*>(p);
  const words bits = __builtin_convertvector(x, words) << 16;
  Vector<float> y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

// Rounds to nearest, ties to even; NaN stays NaN.
inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return x == x ? static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16) : 0x7FC0;
}
inline void to_bfloat16(uint16_t* p, Vector<float> x) {
  words bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16;
  const words nan = words{} + 0x7FC0u;
  bits = x == x ? bits : nan;
  *reinterpret_cast<loose_halves*>(p) = __builtin_convertvector(bits, halves);
}

float largest(Vector<float> x) {
  float top = x[0];
  for (i64 n = 1; n < WIDE; ++n) top = x[n] > top || x[n] != x[n] ? x[n] : top;
  return top;
}
float sum(Vector<float> x) { return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])); }

// One row. `values` has room for the row rounded up to whole vectors.
float row_loss(i64 size, uint16_t* logits, const float* bias, i64 target, float weight, bool gradient, float* values) {
  const i64 even = size / WIDE * WIDE, padded = round_up(size, WIDE);
  const float lowest = -std::numeric_limits<float>::infinity();
  Vector<float> top = Vector<float>{} + lowest;
  for (i64 v = 0; v < even; v += WIDE) {
    const Vector<float> x = from_bfloat16(logits + v) + load(bias + v);
    store(values + v, x);
    top = x > top || x != x ? x : top;
  }
  for (i64 v = even; v < padded; ++v) values[v] = v < size ? from_bfloat16(logits[v]) + bias[v] : lowest;
  if (even < padded) {
    const Vector<float> x = load(values + even);
    top = x > top || x != x ? x : top;
  }
  const float highest = largest(top), wanted = values[target];
  Vector<float> total = {};
  for (i64 v = 0; v < padded; v += WIDE) {
    const Vector<float> e = exponential(load(values + v) - highest);
    store(values + v, e);
    total += e;
  }
  const float denominator = sum(total);
  if (gradient) {
    const float scale = weight / denominator;
    for (i64 v = 0; v < even; v += WIDE) to_bfloat16(logits + v, load(values + v) * scale);
    for (i64 v = even; v < size; ++v) logits[v] = to_bfloat16(values[v] * scale);
    logits[target] = to_bfloat16(values[target] * scale - weight);
  }
  return highest - wanted + std::log(denominator);
}

}  // namespace

extern "C" {
// logits [rows, size] in bfloat16, dense; bias [size]; targets, weights and nll [rows]. With bias_gradient [size], to
// which the gradient is added, the logits become weights * (p - onehot(target)). Returns 1 if memory ran out.
int segue_nll_bfloat16(uint16_t* logits, const float* bias, const int64_t* targets, const float* weights, float* nll,
                       float* bias_gradient, int64_t rows, int64_t size, int64_t threads) {
  int failed = 0;
#pragma omp parallel num_threads(threads)
  {
    const Buffer<float> values(round_up(size, WIDE));
    if (!values) {
#pragma omp atomic write
      failed = 1;
    }
#pragma omp barrier
    if (!failed) {
#pragma omp for schedule(static)
      for (i64 n = 0; n < rows; ++n)
        nll[n] = row_loss(size, logits + n * size, bias, targets[n], weights[n], bias_gradient != nullptr, values);
      if (bias_gradient) {
#pragma omp for schedule(static)
        for (i64 start = 0; start < size; start += COLUMNS) {
          const i64 end = size - start < COLUMNS ? size : start + COLUMNS;
          for (i64 n = 0; n < rows; ++n) {
            const uint16_t* row = logits + n * size;
            i64 v = start;
            for (; v + WIDE <= end; v += WIDE)
              store(bias_gradient + v, load(bias_gradient + v) + from_bfloat16(row + v));
            for (; v < end; ++v) bias_gradient[v] += from_bfloat16(row[v]);
          }
        }
      }
    }
  }
  return failed;
}
}
