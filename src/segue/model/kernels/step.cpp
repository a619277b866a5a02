// One token per row through one layer, with the keys and values of earlier tokens in a cache; and products with few
// rows, of weights in floating point or in 8 bits. See streaming.py for the definition.
//
// With one row, reading the weights dominates the time: each weight is read once, in order, by one thread. All stages
// of a layer run in one parallel region. Threads take small parts of a stage until none is left, so that a thread whose
// core is busy delays the others by at most one part. Each sum is computed in one order, for any number of threads and
// of rows.

#include <cmath>
#include <cstdint>
#include <limits>
#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include "lanes.h"

namespace {

using namespace segue;

// A matrix [outputs, inputs] in floating point, or in 8 bits with a scale for each output. It is packed in panels of 16
// outputs (8 for doubles): [outputs / PANEL][inputs][PANEL], with zeros at the end of the last one.
struct Weights {
  const void* numbers;  // null: 8 bits
  const int8_t* bits;
  const void* scale;  // [outputs]
  const void* bias;   // [outputs] or null
};

// The same fields as in step.py. Strides count elements, not bytes.
struct Layer {
  i64 rows;     // rows that read a token
  i64 asking;   // rows of the query stream: one for each row, or none
  i64 width, heads, head_width, inner;
  i64 keys;     // positions that may be visible, the token itself last
  i64 threads;
  i64 norm_first;
  i64 activation;  // 0 relu, 1 gelu, 2 gelu_tanh
  double norm_epsilon, scale;
  Weights query, key, value, out, widen, narrow;
  const void *attention_norm_weight, *attention_norm_bias, *feed_forward_norm_weight, *feed_forward_norm_bias;
  const void *content_bias, *position_bias;  // [heads, head_width] or null
  const void* position;  // of the first key's distance from the token; the next key's is the next row; null: none
  i64 position_head;     // from one head to the next
  void *cache_key, *cache_value;  // at the first of the keys: [rows, heads, keys, head_width]
  i64 cache_row, cache_head;      // from one row to the next, from one head to the next
  const uint8_t* seen;            // [rows, keys]
  i64 seen_row;
  void* hidden;   // [rows + asking, width]: in and out
  void* scratch;  // scratch_size(...) numbers
};

template <class T>
inline T sum(Vector<T> x) {
  T total = x[0];
  for (i64 n = 1; n < LANES<T>; ++n) total += x[n];
  return total;
}
template <>
inline float sum<float>(Vector<float> x) {
  typedef float half __attribute__((vector_size(16)));
  half low, high;
  std::memcpy(&low, &x, 16);
  std::memcpy(&high, reinterpret_cast<const char*>(&x) + 16, 16);
  low += high;
  return (low[0] + low[2]) + (low[1] + low[3]);
}

template <class T>
inline Vector<T> weights_at(const T* p) {
  return load(p);
}
template <class T>
inline Vector<T> weights_at(const int8_t* p) {
  Vector<T> x;
#ifdef __AVX2__
  if constexpr (LANES<T> == 8) {  // compilers generate far slower code for the loop below
    const __m256 y = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    std::memcpy(&x, &y, sizeof x);
    return x;
  }
#endif
  for (i64 n = 0; n < LANES<T>; ++n) x[n] = static_cast<T>(p[n]);
  return x;
}

// ------------------------------------------------------------------------------------------------------------ products

template <class T>
constexpr i64 PANEL = 2 * LANES<T>;  // adjacent outputs

// M rows times P panels, which are `inputs` numbers of each output further on; put(output, row, value) for `count`
// outputs from `first` on.
template <class T, class W, int M, int P, class Put>
inline void tile(const W* w, i64 inputs, const T* x, i64 x_row, const T* scale, const T* bias, i64 first, i64 count,
                 i64 row, const Put& put) {
  Vector<T> total[M][P][2] = {};
  for (i64 k = 0; k < inputs; ++k) {
    Vector<T> left[P], right[P];
    for (int p = 0; p < P; ++p) {
      const W* from = w + (p * inputs + k) * PANEL<T>;
      __builtin_prefetch(from + 32 * PANEL<T>);  // hardware prefetching restarts with each part
      left[p] = weights_at<T>(from);
      right[p] = weights_at<T>(from + LANES<T>);
    }
    for (int m = 0; m < M; ++m) {
      const T value = x[m * x_row + k];
      for (int p = 0; p < P; ++p) {
        total[m][p][0] += value * left[p];
        total[m][p][1] += value * right[p];
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    T sums[P * PANEL<T>];
    for (int p = 0; p < P; ++p) {
      store(sums + p * PANEL<T>, total[m][p][0]);
      store(sums + p * PANEL<T> + LANES<T>, total[m][p][1]);
    }
    for (i64 o = 0; o < count; ++o) {
      const T value = scale ? sums[o] * scale[first + o] : sums[o];
      put(first + o, row + m, bias ? value + bias[first + o] : value);
    }
  }
}

template <class T, class W, class Put>
void product(const W* w, const T* scale, const T* bias, i64 outputs, i64 inputs, const T* x, i64 x_row, i64 rows,
             const Put& put) {
  const i64 unit = rows == 1 ? 2 * PANEL<T> : PANEL<T>;  // a single row is summed in two panels at a time
#pragma omp for schedule(dynamic, rows == 1 ? 2 : 4) nowait
  for (i64 first = 0; first < outputs; first += unit) {
    const W* from = w + first * inputs;
    const i64 count = outputs - first < unit ? outputs - first : unit;
    if (rows == 1 && count > PANEL<T>) {
      tile<T, W, 1, 2>(from, inputs, x, x_row, scale, bias, first, count, 0, put);
      continue;
    }
    i64 n = 0;
    for (; n + 6 <= rows; n += 6)
      tile<T, W, 6, 1>(from, inputs, x + n * x_row, x_row, scale, bias, first, count, n, put);
    const T* rest = x + n * x_row;
    switch (rows - n) {
      case 5: tile<T, W, 5, 1>(from, inputs, rest, x_row, scale, bias, first, count, n, put); break;
      case 4: tile<T, W, 4, 1>(from, inputs, rest, x_row, scale, bias, first, count, n, put); break;
      case 3: tile<T, W, 3, 1>(from, inputs, rest, x_row, scale, bias, first, count, n, put); break;
      case 2: tile<T, W, 2, 1>(from, inputs, rest, x_row, scale, bias, first, count, n, put); break;
      case 1: tile<T, W, 1, 1>(from, inputs, rest, x_row, scale, bias, first, count, n, put); break;
      default: break;
    }
  }
}

// To be called by all threads of a region, which continue without waiting for each other. put(output, row, value).
template <class T, class Put>
void product(const Weights& w, i64 outputs, i64 inputs, const T* x, i64 x_row, i64 rows, const Put& put) {
  const T* bias = static_cast<const T*>(w.bias);
  if (w.numbers)
    product<T, T>(static_cast<const T*>(w.numbers), nullptr, bias, outputs, inputs, x, x_row, rows, put);
  else
    product<T, int8_t>(w.bits, static_cast<const T*>(w.scale), bias, outputs, inputs, x, x_row, rows, put);
}

// --------------------------------------------------------------------------------------------------- around attention

template <class T>
void normalise(const T* from, const void* weight, const void* bias, i64 width, double epsilon, T* to) {
  const T *w = static_cast<const T*>(weight), *b = static_cast<const T*>(bias);
  double mean = 0, square = 0;
  for (i64 n = 0; n < width; ++n) mean += from[n];
  mean /= width;
  for (i64 n = 0; n < width; ++n) square += (from[n] - mean) * (from[n] - mean);
  const double factor = 1 / std::sqrt(square / width + epsilon);
  for (i64 n = 0; n < width; ++n) to[n] = static_cast<T>((from[n] - mean) * factor) * w[n] + b[n];
}

template <class T>
inline T activated(T x, i64 activation) {
  switch (activation) {
    case 0: return x > T(0) ? x : (x != x ? x : T(0));
    case 1: return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
    default: {
      const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
      return T(0.5) * x * (T(1) + std::tanh(inner));
    }
  }
}

// Attention output of head h of row n: the content score of each key, the score of its distance, softmax, values.
// Rows from p.rows on are the query stream: each is at the position behind its row's token, one further from all keys.
template <class T>
void read_keys(const Layer& p, i64 n, i64 h, const T* query, T* left, T* right, T* score, T* mixed) {
  const i64 E = p.head_width, even = E / LANES<T> * LANES<T>;
  const bool asks = n >= p.rows;
  const i64 b = asks ? n - p.rows : n;
  const T *u = static_cast<const T*>(p.content_bias), *v = static_cast<const T*>(p.position_bias);
  const T scale = static_cast<T>(p.scale);
  for (i64 e = 0; e < E; ++e) {
    left[e] = (query[e] + (u ? u[h * E + e] : T(0))) * scale;
    right[e] = (query[e] + (v ? v[h * E + e] : T(0))) * scale;
  }
  const T* key = static_cast<const T*>(p.cache_key) + b * p.cache_row + h * p.cache_head;
  const T* value = static_cast<const T*>(p.cache_value) + b * p.cache_row + h * p.cache_head;
  const T* position =
      p.position ? static_cast<const T*>(p.position) + h * p.position_head - (asks ? E : 0) : nullptr;
  const uint8_t* seen = p.seen + b * p.seen_row;
  T most = -std::numeric_limits<T>::infinity();
  for (i64 j = 0; j < p.keys; ++j) {
    if (!seen[j]) {
      score[j] = -std::numeric_limits<T>::infinity();
      continue;
    }
    Vector<T> total = {};
    for (i64 e = 0; e < even; e += LANES<T>) total += load(left + e) * load(key + j * E + e);
    if (position)
      for (i64 e = 0; e < even; e += LANES<T>) total += load(right + e) * load(position + j * E + e);
    T found = sum<T>(total);
    for (i64 e = even; e < E; ++e) {
      found += left[e] * key[j * E + e];
      if (position) found += right[e] * position[j * E + e];
    }
    score[j] = found;
    if (!(found <= most)) most = found;  // NaN stays
  }
  T whole = 0;
  i64 j = 0;
  Vector<T> wholes = {};
  for (; j + LANES<T> <= p.keys; j += LANES<T>) {
    const Vector<T> power = exponential(load(score + j) - most);
    store(score + j, power);
    wholes += power;
  }
  for (; j < p.keys; ++j) whole += score[j] = std::exp(score[j] - most);
  whole += sum<T>(wholes);
  for (i64 e = 0; e < E; ++e) mixed[e] = 0;
  constexpr int WIDE = 8;  // vectors of a value summed at a time
  for (i64 e = 0; e < even; e += WIDE * LANES<T>) {
    const int count = (even - e) / LANES<T> < WIDE ? (even - e) / LANES<T> : WIDE;
    Vector<T> total[WIDE] = {};
    if (count == WIDE) {
      for (i64 k = 0; k < p.keys; ++k)
        for (int c = 0; c < WIDE; ++c) total[c] += score[k] * load(value + k * E + e + c * LANES<T>);
    } else {
      for (i64 k = 0; k < p.keys; ++k)
        for (int c = 0; c < count; ++c) total[c] += score[k] * load(value + k * E + e + c * LANES<T>);
    }
    for (int c = 0; c < count; ++c) store(mixed + e + c * LANES<T>, total[c] / whole);
  }
  for (i64 e = even; e < E; ++e) {
    T total = 0;
    for (i64 k = 0; k < p.keys; ++k) total += score[k] * value[k * E + e];
    mixed[e] = total / whole;
  }
}

i64 scratch_size(i64 rows, i64 width, i64 all_heads, i64 inner, i64 head_width, i64 keys, i64 threads) {
  return rows * (2 * width + 2 * all_heads + inner) + threads * (2 * head_width + keys + 64) + 64;
}

template <class T>
void step(const Layer& p) {
  const i64 rows = p.rows + p.asking, D = p.width, E = p.head_width, HE = p.heads * E;
  T* hidden = static_cast<T*>(p.hidden);
  T* normed = static_cast<T*>(p.scratch);
  T* middle = normed + rows * D;
  T* query = middle + rows * D;
  T* mixed = query + rows * HE;
  T* inner = mixed + rows * HE;
  T* own = inner + rows * p.inner;
  T* new_key = static_cast<T*>(p.cache_key) + (p.keys - 1) * E;
  T* new_value = static_cast<T*>(p.cache_value) + (p.keys - 1) * E;
  const T* source = p.norm_first ? normed : hidden;
#pragma omp parallel num_threads(p.threads)
  {
#ifdef _OPENMP
    T* mine = own + omp_get_thread_num() * (2 * E + p.keys + 64);
#else
    T* mine = own;
#endif
    if (p.norm_first) {
#pragma omp for schedule(static)
      for (i64 n = 0; n < rows; ++n)
        normalise(hidden + n * D, p.attention_norm_weight, p.attention_norm_bias, D, p.norm_epsilon, normed + n * D);
    }
    product<T>(p.query, HE, D, source, D, rows, [&](i64 o, i64 n, T value) { query[n * HE + o] = value; });
    product<T>(p.key, HE, D, source, D, p.rows, [&](i64 o, i64 n, T value) {
      new_key[n * p.cache_row + o / E * p.cache_head + o % E] = value;
    });
    product<T>(p.value, HE, D, source, D, p.rows, [&](i64 o, i64 n, T value) {
      new_value[n * p.cache_row + o / E * p.cache_head + o % E] = value;
    });
#pragma omp barrier
#pragma omp for schedule(dynamic, 1)
    for (i64 item = 0; item < rows * p.heads; ++item) {
      const i64 h = item / rows, n = item % rows;  // the keys of a head's distances serve all rows in turn
      read_keys<T>(p, n, h, query + n * HE + h * E, mine, mine + E, mine + 2 * E, mixed + n * HE + h * E);
    }
    product<T>(p.out, D, HE, mixed, HE, rows,
               [&](i64 o, i64 n, T value) { middle[n * D + o] = hidden[n * D + o] + value; });
#pragma omp barrier
#pragma omp for schedule(static)
    for (i64 n = 0; n < rows; ++n) {
      const void* weight = p.norm_first ? p.feed_forward_norm_weight : p.attention_norm_weight;
      const void* bias = p.norm_first ? p.feed_forward_norm_bias : p.attention_norm_bias;
      normalise(middle + n * D, weight, bias, D, p.norm_epsilon, normed + n * D);
    }
    product<T>(p.widen, p.inner, D, normed, D, rows,
               [&](i64 o, i64 n, T value) { inner[n * p.inner + o] = activated(value, p.activation); });
#pragma omp barrier
    const T* rest = p.norm_first ? middle : normed;
    product<T>(p.narrow, D, p.inner, inner, p.inner, rows,
               [&](i64 o, i64 n, T value) { hidden[n * D + o] = rest[n * D + o] + value; });
    if (!p.norm_first) {
#pragma omp barrier
#pragma omp for schedule(static)
      for (i64 n = 0; n < rows; ++n)
        normalise(hidden + n * D, p.feed_forward_norm_weight, p.feed_forward_norm_bias, D, p.norm_epsilon,
                  hidden + n * D);
    }
  }
}

template <class T>
void linear(const Weights& w, i64 outputs, i64 inputs, const T* x, i64 rows, T* to, i64 threads) {
#pragma omp parallel num_threads(threads)
  product<T>(w, outputs, inputs, x, inputs, rows, [&](i64 o, i64 n, T value) { to[n * outputs + o] = value; });
}

}  // namespace

extern "C" {
int64_t segue_panel_float32() { return PANEL<float>; }
int64_t segue_panel_float64() { return PANEL<double>; }
int64_t segue_layer_size() { return sizeof(Layer); }
int64_t segue_scratch_size(int64_t rows, int64_t width, int64_t all_heads, int64_t inner, int64_t head_width,
                           int64_t keys, int64_t threads) {
  return scratch_size(rows, width, all_heads, inner, head_width, keys, threads);
}
void segue_steps_float32(const Layer* layers, int64_t count) {
  for (int64_t n = 0; n < count; ++n) step<float>(layers[n]);
}
void segue_steps_float64(const Layer* layers, int64_t count) {
  for (int64_t n = 0; n < count; ++n) step<double>(layers[n]);
}
void segue_linear_float32(const Weights* w, int64_t outputs, int64_t inputs, const float* x, int64_t rows, float* to,
                          int64_t threads) {
  linear<float>(*w, outputs, inputs, x, rows, to, threads);
}
void segue_linear_float64(const Weights* w, int64_t outputs, int64_t inputs, const double* x, int64_t rows, double* to,
                          int64_t threads) {
  linear<double>(*w, outputs, inputs, x, rows, to, threads);
}
}
