// Attention with relative positions, in tiles that stay in the cache; and dropout by hash. See definition.py and
// dropout.py for the definitions, docs/performance.md for the reasons. Plain C++ with the vectors of GCC and Clang.
//
// The work is divided by (row of the batch, head). Each processes 48 queries at a time, and the keys block by block:
// scores, the position score read with a shift from its product with the distances, exponentials and their product
// with the values are computed without leaving the cache. If a later block has a higher score, earlier results are
// rescaled (online softmax). The backward pass only needs the logarithm of each softmax's denominator and computes the
// scores again. Nothing of the size queries x keys is ever stored.
//
// The sums of one (row, head) are always computed in the same order, so results do not depend on the number of threads.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "lanes.h"

namespace {

using namespace segue;

constexpr i64 TILE = 48;    // queries processed together
constexpr i64 AHEAD = 512;  // keys processed together in the forward pass
constexpr i64 BLOCK = 256;  // keys processed together in the backward pass
constexpr i64 DEPTH = 256;  // inner dimension of a product processed at a time

template <class T>
constexpr i64 PANEL = 2 * LANES<T>;  // adjacent columns of a packed matrix

// ------------------------------------------------------------------------------------------------ matrix products

// c[m, 0..PANEL] (+)= sum over k of a(m, k) b[k, 0..PANEL], with a(m, k) = a[m * a_row + k * a_column].
template <class T, int M>
inline void product_in_registers(i64 depth, const T* a, i64 a_row, i64 a_column, const T* b, T* c, i64 c_row,
                                 bool add) {
  Vector<T> sum[M][2] = {};
  for (i64 k = 0; k < depth; ++k) {
    const Vector<T> left = load(b), right = load(b + LANES<T>);
    for (int m = 0; m < M; ++m) {
      const T x = a[m * a_row];
      sum[m][0] += x * left;
      sum[m][1] += x * right;
    }
    a += a_column;
    b += PANEL<T>;
  }
  for (int m = 0; m < M; ++m) {
    T* to = c + m * c_row;
    if (add) {
      sum[m][0] += load(to);
      sum[m][1] += load(to + LANES<T>);
    }
    store(to, sum[m][0]);
    store(to + LANES<T>, sum[m][1]);
  }
}

// C (+)= A B for a packed B: `panels` panels, `panel_size` numbers apart, each [depth, PANEL].
template <class T>
void product(i64 rows, i64 panels, i64 depth, const T* a, i64 a_row, i64 a_column, const T* b, i64 panel_size, T* c,
             i64 c_row, bool add) {
  for (i64 start = 0; start < depth; start += DEPTH) {
    const i64 part = depth - start < DEPTH ? depth - start : DEPTH;
    const bool more = add || start > 0;
    for (i64 p = 0; p < panels; ++p) {
      const T* from = b + p * panel_size + start * PANEL<T>;
      i64 m = 0;
      for (; m + 6 <= rows; m += 6)
        product_in_registers<T, 6>(part, a + m * a_row + start * a_column, a_row, a_column, from,
                                   c + m * c_row + p * PANEL<T>, c_row, more);
      const T* rest = a + m * a_row + start * a_column;
      T* to = c + m * c_row + p * PANEL<T>;
      switch (rows - m) {
        case 5: product_in_registers<T, 5>(part, rest, a_row, a_column, from, to, c_row, more); break;
        case 4: product_in_registers<T, 4>(part, rest, a_row, a_column, from, to, c_row, more); break;
        case 3: product_in_registers<T, 3>(part, rest, a_row, a_column, from, to, c_row, more); break;
        case 2: product_in_registers<T, 2>(part, rest, a_row, a_column, from, to, c_row, more); break;
        case 1: product_in_registers<T, 1>(part, rest, a_row, a_column, from, to, c_row, more); break;
        default: break;
      }
    }
  }
}

// Rows of `width` numbers as panels of columns, [width / PANEL][rows][PANEL]; zeros fill the last one.
template <class T>
void pack(const T* from, i64 row, i64 rows, i64 width, T* to) {
  for (i64 e = 0; e < width; e += PANEL<T>) {
    const i64 part = width - e < PANEL<T> ? width - e : PANEL<T>;
    for (i64 n = 0; n < rows; ++n, to += PANEL<T>) {
      const T* source = from + n * row + e;
      if (part == PANEL<T>) {
        store(to, load(source));
        store(to + LANES<T>, load(source + LANES<T>));
      } else {
        for (i64 x = 0; x < PANEL<T>; ++x) to[x] = x < part ? source[x] : T(0);
      }
    }
  }
}

// The transposed matrix as panels of rows, [columns / PANEL][width][PANEL]; zeros where `rows` end before `columns`.
template <class T>
void pack_transposed(const T* from, i64 row, i64 rows, i64 columns, i64 width, T* to) {
  for (i64 n = 0; n < columns; n += PANEL<T>, to += width * PANEL<T>) {
    const T* source = from + n * row;
    if (n + PANEL<T> <= rows) {
      for (i64 e = 0; e < width; ++e)
        for (i64 x = 0; x < PANEL<T>; ++x) to[e * PANEL<T> + x] = source[x * row + e];
    } else {
      for (i64 e = 0; e < width; ++e)
        for (i64 x = 0; x < PANEL<T>; ++x) to[e * PANEL<T> + x] = n + x < rows ? source[x * row + e] : T(0);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ hash

inline uint32_t row_key(uint64_t seed, uint64_t row) {
  uint64_t x = seed + row * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>(x >> 32);
}

// The factors of dropout: `scale` or 0, for one row and the columns from `first` on.
template <class T>
struct Keep {
  using Hash = typename Lanes<T>::hash;
  uint32_t key, threshold;
  T scale;

  Vector<T> operator()(i64 first) const {
    Hash x = {0, 1, 2, 3};
    if constexpr (LANES<T> == 8) x = Hash{0, 1, 2, 3, 4, 5, 6, 7};
    x = ((x + static_cast<uint32_t>(first)) * 0x9E3779B1u) ^ key;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    x ^= x >> 16;
    const auto kept = __builtin_convertvector(x >= threshold, typename Lanes<T>::choice);
    return kept ? Vector<T>{} + scale : Vector<T>{};
  }
};

// ------------------------------------------------------------------------------------------------------- attention

// The same fields as in native.py. Strides count elements, not bytes; the last dimension is always contiguous.
struct Problem {
  i64 rows, heads, queries, keys, width;
  i64 segment;    // positions of the segment: key j is in column segment - at + j of the distances
  i64 distances;  // number of distances; keys further right have none, and must be masked
  i64 signs;      // 1, or one for each row; 0: no position score
  i64 threads;
  const void *query, *key, *value, *position;
  i64 query_strides[3], key_strides[3], value_strides[3], position_strides[3];
  const void *content_bias, *position_bias;  // [heads, width] or null
  const void* segment_score;                 // [rows, heads, queries, 2] or null
  const uint8_t *mask, *differs;             // [rows, queries, keys] or null
  i64 mask_strides[2], differs_strides[2];
  const i64* at;  // [rows, queries] or null
  double scale, dropout;
  uint64_t seed, threshold;
  void *out, *log_sum;  // [rows, queries, heads, width], [rows, heads, queries]
  // for the backward pass
  const void* grad_out;
  i64 grad_out_strides[3];
  void *grad_query, *grad_key, *grad_value;            // as out; [rows, keys, heads, width]
  void* grad_position;                                 // [rows, distances, heads, width]
  void *grad_content_bias, *grad_position_bias;        // [rows, heads, width]
  void* grad_segment_score;                            // as segment_score
};

// Keys visible to the queries of a tile: none outside [first, last); if `whole`, all queries see all of these.
struct Reach {
  i64 first, last;
  bool whole;
};

template <class T>
Reach reach(const Problem& p, i64 b, i64 start, i64 count) {
  if (!p.mask) return {0, p.keys, true};
  i64 first = p.keys, last = 0;
  for (i64 i = start; i < start + count; ++i) {
    const uint8_t* see = p.mask + b * p.mask_strides[0] + i * p.mask_strides[1];
    i64 from = 0, to = p.keys;
    while (from < first && !see[from]) ++from;
    while (to > last && !see[to - 1]) --to;
    if (from < first) first = from;
    if (to > last) last = to;
  }
  if (first >= last) return {0, 0, true};
  first = first / PANEL<T> * PANEL<T>;
  for (i64 i = start; i < start + count; ++i) {
    const uint8_t* see = p.mask + b * p.mask_strides[0] + i * p.mask_strides[1];
    if (std::memchr(see + first, 0, last - first)) return {first, last, false};
  }
  return {first, last, true};
}

// The distances of all heads (and signs), packed for their products.
template <class T>
struct Positions {
  i64 columns;  // rounded up to panels; zeros beyond the distances
  i64 size, wide;
  Buffer<T> transposed;  // for each sign and head [columns / PANEL][width][PANEL], `size` numbers
  Buffer<T> flat;        // for each sign and head [width / PANEL][columns][PANEL], `wide` numbers; backward only

  Positions(const Problem& p, bool backward)
      : columns(p.signs ? round_up(p.segment + p.keys, PANEL<T>) : 0),
        size(columns * p.width),
        wide(columns * round_up(p.width, PANEL<T>)),
        transposed(p.signs * p.heads * size),
        flat(backward ? p.signs * p.heads * wide : 0) {
    if (!transposed || !flat) return;
    const i64 known = p.distances < columns ? p.distances : columns;
#pragma omp parallel for num_threads(p.threads) schedule(static)
    for (i64 n = 0; n < p.signs * p.heads; ++n) {
      const T* from = static_cast<const T*>(p.position) + n / p.heads * p.position_strides[0] +
                      n % p.heads * p.position_strides[2];
      pack_transposed(from, p.position_strides[1], known, columns, p.width, transposed + n * size);
      T* to = flat + n * wide;
      for (i64 e = 0; backward && e < p.width; e += PANEL<T>, to += columns * PANEL<T>) {
        pack(from + e, p.position_strides[1], known, p.width - e < PANEL<T> ? p.width - e : PANEL<T>, to);
        std::memset(to + known * PANEL<T>, 0, (columns - known) * PANEL<T> * sizeof(T));
      }
    }
  }
  i64 head(const Problem& p, i64 b, i64 h) const { return (p.signs == 1 ? 0 : b) * p.heads + h; }
};

// The queries of one tile, scaled, with their biases added.
template <class T>
void biased(const Problem& p, i64 b, i64 h, i64 start, i64 count, const void* bias, T* to) {
  const T* from = static_cast<const T*>(p.query) + b * p.query_strides[0] + h * p.query_strides[2];
  const T* add = bias ? static_cast<const T*>(bias) + h * p.width : nullptr;
  const T scale = static_cast<T>(p.scale);
  for (i64 i = 0; i < count; ++i)
    for (i64 e = 0; e < p.width; ++e)
      to[i * p.width + e] = (from[(start + i) * p.query_strides[1] + e] + (add ? add[e] : T(0))) * scale;
}

// Location of the distances between a tile's queries and a block of keys.
struct Band {
  i64 first, panels;  // columns, the first one at the border of a panel
};

template <class T>
Band band(const Problem& p, i64 b, i64 start, i64 count, i64 first_key, i64 last_key) {
  i64 low = start, high = start + count - 1;
  if (p.at) {
    low = p.segment, high = 0;
    for (i64 i = start; i < start + count; ++i) {
      const i64 at = p.at[b * p.queries + i];
      if (at < low) low = at;
      if (at > high) high = at;
    }
  }
  const i64 first = (p.segment - high + first_key) / PANEL<T> * PANEL<T>;
  return {first, round_up(p.segment - low + last_key - first, PANEL<T>) / PANEL<T>};
}

inline i64 position_of(const Problem& p, i64 b, i64 i) { return p.at ? p.at[b * p.queries + i] : i; }

// The scores of one query: content (in `score`) plus position plus segment, the lowest number where masked.
// Columns up to the end of a vector are also filled with the lowest number. Returns the highest; NaN counts as low.
template <class T>
inline T complete_score(const Problem& p, i64 b, i64 h, i64 i, i64 first, i64 count, const T* __restrict shifted,
                        bool whole, T* __restrict score) {
  const T lowest = std::numeric_limits<T>::lowest();
  const i64 even = count / LANES<T> * LANES<T>;
  if (p.segment_score) {
    const T* two = static_cast<const T*>(p.segment_score) + ((b * p.heads + h) * p.queries + i) * 2;
    const T same = two[0] * static_cast<T>(p.scale), other = two[1] * static_cast<T>(p.scale);
    const uint8_t* differs = p.differs + b * p.differs_strides[0] + i * p.differs_strides[1] + first;
    for (i64 n = 0; n < count; ++n) score[n] += differs[n] ? other : same;
  }
  if (!whole) {
    const uint8_t* see = p.mask + b * p.mask_strides[0] + i * p.mask_strides[1] + first;
    if (shifted)
      for (i64 n = 0; n < count; ++n) score[n] += shifted[n];
    for (i64 n = 0; n < count; ++n) score[n] = see[n] ? score[n] : lowest;
    shifted = nullptr;
  }
  Vector<T> most = Vector<T>{} + lowest;
  for (i64 n = 0; n < even; n += LANES<T>) {
    const Vector<T> x = shifted ? load(score + n) + load(shifted + n) : load(score + n);
    store(score + n, x);
    most = most > x ? most : x;
  }
  T top = lowest;
  for (i64 n = 0; n < LANES<T>; ++n) top = top > most[n] ? top : most[n];
  for (i64 n = even; n < count; ++n) {
    score[n] += shifted ? shifted[n] : T(0);
    top = top > score[n] ? top : score[n];
  }
  for (i64 n = count; n < round_up(count, LANES<T>); ++n) score[n] = lowest;
  return top;
}

// Replaces scores by exp(score - top), then applies dropout; returns the sum before dropout.
template <class T>
inline T exponentials(i64 count, T top, const Keep<T>* keep, i64 first, T* score) {
  T sum = 0;
  if (top <= std::numeric_limits<T>::lowest()) {  // nothing is visible, or nothing but NaN
    for (i64 n = 0; n < count; ++n) {
      score[n] = score[n] == score[n] ? T(0) : score[n];
      sum += score[n];
    }
    return sum;
  }
  Vector<T> sums = {};
  for (i64 n = 0; n < count; n += LANES<T>) {
    const Vector<T> y = exponential(load(score + n) - top);
    sums += y;
    store(score + n, keep ? y * (*keep)(first + n) : y);
  }
  for (i64 n = 0; n < LANES<T>; ++n) sum += sums[n];
  return sum;
}

template <class T>
const T* at_head(const void* base, const i64* strides, i64 b, i64 h) {
  return static_cast<const T*>(base) + b * strides[0] + h * strides[2];
}

// The reach of every tile, [rows][tiles].
template <class T>
void find_reaches(const Problem& p, i64 tiles, Reach* reaches) {
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (i64 n = 0; n < p.rows * tiles; ++n) {
    const i64 start = n % tiles * TILE;
    reaches[n] = reach<T>(p, n / tiles, start, p.queries - start < TILE ? p.queries - start : TILE);
  }
}

template <class T>
int forward(const Problem& p) {
  const i64 E = p.width, wide = round_up(E, PANEL<T>), keys = round_up(p.keys, PANEL<T>);
  const i64 tiles = (p.queries + TILE - 1) / TILE, score_row = AHEAD + PANEL<T>;
  const Positions<T> positions(p, false);
  const Buffer<Reach> reaches(p.rows * tiles);
  if (!positions.transposed || !positions.flat || !reaches) return 1;
  find_reaches<T>(p, tiles, reaches);
  const T kept_scale = static_cast<T>(1 / (1 - p.dropout)), lowest = std::numeric_limits<T>::lowest();
  int failed = 0;

#pragma omp parallel num_threads(p.threads) reduction(| : failed)
  {
    const Buffer<T> key(keys * E), value(p.keys * wide), content(TILE * E), position(TILE * E);
    const Buffer<T> score(TILE * score_row), shifted(p.signs ? TILE * (AHEAD + p.segment + 4 * PANEL<T>) : 0);
    const Buffer<T> mixed(TILE * wide);
    failed = !key || !value || !content || !position || !score || !shifted || !mixed;
    T top[TILE], sum[TILE];

#pragma omp for schedule(dynamic, 1)
    for (i64 n = 0; n < p.rows * p.heads; ++n) {
      if (failed) continue;
      const i64 b = n / p.heads, h = n % p.heads, head = positions.head(p, b, h);
      pack_transposed(at_head<T>(p.key, p.key_strides, b, h), p.key_strides[1], p.keys, keys, E, (T*)key);
      pack(at_head<T>(p.value, p.value_strides, b, h), p.value_strides[1], p.keys, E, (T*)value);
      for (i64 tile = 0; tile < tiles; ++tile) {
        const i64 start = tile * TILE, count = p.queries - start < TILE ? p.queries - start : TILE;
        const Reach see = reaches[b * tiles + tile];
        biased<T>(p, b, h, start, count, p.content_bias, content);
        if (p.signs) biased<T>(p, b, h, start, count, p.position_bias, position);
        std::memset(mixed, 0, count * wide * sizeof(T));
        for (i64 i = 0; i < count; ++i) top[i] = lowest, sum[i] = 0;

        for (i64 first = see.first; first < see.last; first += AHEAD) {
          const i64 length = see.last - first < AHEAD ? see.last - first : AHEAD;
          product<T>(count, round_up(length, PANEL<T>) / PANEL<T>, E, content, E, 1, key + first * E, E * PANEL<T>,
                     score, score_row, false);
          Band strip = {0, 0};
          if (p.signs) {
            strip = band<T>(p, b, start, count, first, first + length);
            product<T>(count, strip.panels, E, position, E, 1,
                       positions.transposed + head * positions.size + strip.first * E, E * PANEL<T>, shifted,
                       strip.panels * PANEL<T>, false);
          }
          for (i64 i = 0; i < count; ++i) {
            const i64 place = p.segment - position_of(p, b, start + i) + first - strip.first;
            const T* distances = p.signs ? shifted + i * strip.panels * PANEL<T> + place : nullptr;
            T* line = score + i * score_row;
            const T most = complete_score(p, b, h, start + i, first, length, distances, see.whole, line);
            if (most > top[i]) {
              const T less = std::exp(top[i] - most);
              for (i64 e = 0; first > see.first && e < wide; ++e) mixed[i * wide + e] *= less;
              sum[i] *= less;
              top[i] = most;
            }
            const Keep<T> keep = {row_key(p.seed, n * p.queries + start + i), static_cast<uint32_t>(p.threshold),
                                  kept_scale};
            sum[i] += exponentials(length, top[i], p.threshold ? &keep : nullptr, first, line);
          }
          product<T>(count, wide / PANEL<T>, length, score, score_row, 1, value + first * PANEL<T>, p.keys * PANEL<T>,
                     mixed, wide, true);
        }

        for (i64 i = 0; i < count; ++i) {
          const bool nothing = sum[i] == 0;
          const T factor = nothing ? T(0) : 1 / sum[i];
          T* to = static_cast<T*>(p.out) + ((b * p.queries + start + i) * p.heads + h) * E;
          for (i64 e = 0; e < E; ++e) to[e] = mixed[i * wide + e] * factor;
          static_cast<T*>(p.log_sum)[n * p.queries + start + i] =
              nothing ? std::numeric_limits<T>::infinity() : top[i] + std::log(sum[i]);
        }
      }
    }
  }
  return failed;
}

template <class T>
int backward(const Problem& p) {
  const i64 E = p.width, wide = round_up(E, PANEL<T>), keys = round_up(p.keys, PANEL<T>);
  const i64 tiles = (p.queries + TILE - 1) / TILE, score_row = BLOCK + PANEL<T>;
  const Positions<T> positions(p, true);
  const Buffer<Reach> reaches(p.rows * tiles);
  if (!positions.transposed || !positions.flat || !reaches) return 1;
  find_reaches<T>(p, tiles, reaches);
  const T kept_scale = static_cast<T>(1 / (1 - p.dropout)), scale = static_cast<T>(p.scale);
  const Vector<T> one = Vector<T>{} + T(1);
  int failed = 0;

#pragma omp parallel num_threads(p.threads) reduction(| : failed)
  {
    const i64 columns = positions.columns;
    const Buffer<T> key(keys * E), flat_key(p.keys * wide), value(keys * E);
    const Buffer<T> grad_key(keys * wide), grad_value(keys * wide), grad_position(columns * wide);
    const Buffer<T> grad_content(p.queries * wide), grad_shifted(p.queries * wide), delta(p.queries);
    const Buffer<T> content(TILE * E), position(TILE * E), incoming(TILE * E);
    const Buffer<T> flat_content(TILE * wide), flat_position(TILE * wide), flat_incoming(TILE * wide);
    const Buffer<T> score(TILE * score_row), grad(TILE * score_row);
    const Buffer<T> shifted(p.signs ? TILE * (BLOCK + p.segment + 4 * PANEL<T>) : 0);
    failed = !key || !flat_key || !value || !grad_key || !grad_value || !grad_position || !grad_content ||
             !grad_shifted || !delta || !content || !position || !incoming || !flat_content || !flat_position ||
             !flat_incoming || !score || !grad || !shifted;

#pragma omp for schedule(dynamic, 1)
    for (i64 n = 0; n < p.rows * p.heads; ++n) {
      if (failed) continue;
      const i64 b = n / p.heads, h = n % p.heads, head = positions.head(p, b, h);
      const T* grad_out = at_head<T>(p.grad_out, p.grad_out_strides, b, h);
      const T* out = static_cast<const T*>(p.out) + (b * p.queries * p.heads + h) * E;
      T* grad_two = p.segment_score ? static_cast<T*>(p.grad_segment_score) + n * p.queries * 2 : nullptr;
      const T* from_key = at_head<T>(p.key, p.key_strides, b, h);
      pack_transposed(from_key, p.key_strides[1], p.keys, keys, E, (T*)key);
      pack(from_key, p.key_strides[1], p.keys, E, (T*)flat_key);
      pack_transposed(at_head<T>(p.value, p.value_strides, b, h), p.value_strides[1], p.keys, keys, E, (T*)value);
      std::memset(grad_key, 0, keys * wide * sizeof(T));
      std::memset(grad_value, 0, keys * wide * sizeof(T));
      std::memset(grad_position, 0, columns * wide * sizeof(T));
      std::memset(grad_content, 0, p.queries * wide * sizeof(T));
      std::memset(grad_shifted, 0, p.queries * wide * sizeof(T));
      if (grad_two) std::memset(grad_two, 0, p.queries * 2 * sizeof(T));
      for (i64 i = 0; i < p.queries; ++i) {  // the term that each softmax subtracts from all of its keys
        T sum = 0;
        for (i64 e = 0; e < E; ++e) sum += out[i * p.heads * E + e] * grad_out[i * p.grad_out_strides[1] + e];
        delta[i] = sum;
      }

      for (i64 block = 0; block < p.keys; block += BLOCK)
        for (i64 tile = 0; tile < tiles; ++tile) {
          const i64 start = tile * TILE, count = p.queries - start < TILE ? p.queries - start : TILE;
          const Reach see = reaches[b * tiles + tile];
          const i64 first = see.first > block ? see.first : block;
          const i64 last = see.last < block + BLOCK ? see.last : block + BLOCK, length = last - first;
          if (length <= 0) continue;
          const i64 panels = round_up(length, PANEL<T>) / PANEL<T>;

          biased<T>(p, b, h, start, count, p.content_bias, content);
          pack<T>(content, E, count, E, flat_content);
          for (i64 i = 0; i < count; ++i)
            std::memcpy(incoming + i * E, grad_out + (start + i) * p.grad_out_strides[1], E * sizeof(T));
          pack<T>(incoming, E, count, E, flat_incoming);
          product<T>(count, panels, E, content, E, 1, key + first * E, E * PANEL<T>, score, score_row, false);
          product<T>(count, panels, E, incoming, E, 1, value + first * E, E * PANEL<T>, grad, score_row, false);
          Band strip = {0, 0};
          if (p.signs) {
            strip = band<T>(p, b, start, count, first, last);
            biased<T>(p, b, h, start, count, p.position_bias, position);
            pack<T>(position, E, count, E, flat_position);
            product<T>(count, strip.panels, E, position, E, 1,
                       positions.transposed + head * positions.size + strip.first * E, E * PANEL<T>, shifted,
                       strip.panels * PANEL<T>, false);
          }
          const i64 shifted_row = strip.panels * PANEL<T>;

          for (i64 i = 0; i < count; ++i) {
            const i64 place = p.segment - position_of(p, b, start + i) + first - strip.first;
            T* distances = p.signs ? shifted + i * shifted_row : nullptr;
            T *line = score + i * score_row, *slope = grad + i * score_row;
            complete_score(p, b, h, start + i, first, length, distances ? distances + place : nullptr, see.whole, line);
            const i64 query = n * p.queries + start + i;
            const Keep<T> keep = {row_key(p.seed, query), static_cast<uint32_t>(p.threshold), kept_scale};
            const T log_sum = static_cast<const T*>(p.log_sum)[query], less = delta[start + i];
            for (i64 x = 0; x < length; x += LANES<T>) {
              const Vector<T> y = exponential(load(line + x) - log_sum), kept = p.threshold ? keep(first + x) : one;
              store(slope + x, y * (load(slope + x) * kept - less));
              store(line + x, y * kept);
            }
            if (grad_two) {
              const uint8_t* differs = p.differs + b * p.differs_strides[0] + (start + i) * p.differs_strides[1] + first;
              T all = 0, other = 0;
              for (i64 x = 0; x < length; ++x) {
                all += slope[x];
                other += differs[x] ? slope[x] : T(0);
              }
              grad_two[(start + i) * 2] += (all - other) * scale;
              grad_two[(start + i) * 2 + 1] += other * scale;
            }
            if (distances) {  // back from one column a key to one column a distance
              std::memset(distances, 0, shifted_row * sizeof(T));
              std::memcpy(distances + place, slope, length * sizeof(T));
            }
          }

          product<T>(length, wide / PANEL<T>, count, score, 1, score_row, flat_incoming, count * PANEL<T>,
                     grad_value + first * wide, wide, true);
          product<T>(length, wide / PANEL<T>, count, grad, 1, score_row, flat_content, count * PANEL<T>,
                     grad_key + first * wide, wide, true);
          product<T>(count, wide / PANEL<T>, length, grad, score_row, 1, flat_key + first * PANEL<T>,
                     p.keys * PANEL<T>, grad_content + start * wide, wide, true);
          if (p.signs) {
            product<T>(shifted_row, wide / PANEL<T>, count, shifted, 1, shifted_row, flat_position, count * PANEL<T>,
                       grad_position + strip.first * wide, wide, true);
            product<T>(count, wide / PANEL<T>, shifted_row, shifted, shifted_row, 1,
                       positions.flat + head * positions.wide + strip.first * PANEL<T>, columns * PANEL<T>,
                       grad_shifted + start * wide, wide, true);
          }
        }

      for (i64 j = 0; j < p.keys; ++j) {
        const i64 to = ((b * p.keys + j) * p.heads + h) * E;
        std::memcpy(static_cast<T*>(p.grad_key) + to, grad_key + j * wide, E * sizeof(T));
        std::memcpy(static_cast<T*>(p.grad_value) + to, grad_value + j * wide, E * sizeof(T));
      }
      for (i64 r = 0; p.signs && r < p.distances; ++r) {
        T* to = static_cast<T*>(p.grad_position) + ((b * p.distances + r) * p.heads + h) * E;
        if (r < columns)
          std::memcpy(to, grad_position + r * wide, E * sizeof(T));
        else
          std::memset(to, 0, E * sizeof(T));
      }
      for (i64 i = 0; i < p.queries; ++i) {
        T* to = static_cast<T*>(p.grad_query) + ((b * p.queries + i) * p.heads + h) * E;
        for (i64 e = 0; e < E; ++e) to[e] = (grad_content[i * wide + e] + grad_shifted[i * wide + e]) * scale;
      }
      const Buffer<T>* sums[2] = {&grad_content, &grad_shifted};
      void* biases[2] = {p.grad_content_bias, p.grad_position_bias};
      for (int which = 0; which < 2; ++which) {
        if (!biases[which]) continue;
        T* to = static_cast<T*>(biases[which]) + n * E;
        std::memset(to, 0, E * sizeof(T));
        for (i64 i = 0; i < p.queries; ++i)
          for (i64 e = 0; e < E; ++e) to[e] += (*sums[which])[i * wide + e];
        for (i64 e = 0; e < E; ++e) to[e] *= scale;
      }
    }
  }
  return failed;
}

template <class T>
void drop(const T* from, T* to, i64 rows, i64 columns, uint64_t seed, uint32_t threshold, double scale, i64 threads) {
  const i64 even = columns / LANES<T> * LANES<T>;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (i64 row = 0; row < rows; ++row) {
    const Keep<T> keep = {row_key(seed, row), threshold, static_cast<T>(scale)};
    const i64 at = row * columns;
    for (i64 n = 0; n < even; n += LANES<T>) store(to + at + n, load(from + at + n) * keep(n));
    if (even < columns) {
      const Vector<T> last = keep(even);
      for (i64 n = even; n < columns; ++n) to[at + n] = from[at + n] * last[n - even];
    }
  }
}

}  // namespace

#ifndef SEGUE_SOURCE
#define SEGUE_SOURCE ""
#endif

extern "C" {
const char* segue_source() { return SEGUE_SOURCE; }
int64_t segue_problem_size() { return sizeof(Problem); }
int segue_forward_float32(const Problem* p) { return forward<float>(*p); }
int segue_forward_float64(const Problem* p) { return forward<double>(*p); }
int segue_backward_float32(const Problem* p) { return backward<float>(*p); }
int segue_backward_float64(const Problem* p) { return backward<double>(*p); }
void segue_drop_float32(const float* from, float* to, int64_t rows, int64_t columns, uint64_t seed, uint64_t threshold,
                        double scale, int64_t threads) {
  drop(from, to, rows, columns, seed, static_cast<uint32_t>(threshold), scale, threads);
}
void segue_drop_float64(const double* from, double* to, int64_t rows, int64_t columns, uint64_t seed,
                        uint64_t threshold, double scale, int64_t threads) {
  drop(from, to, rows, columns, seed, static_cast<uint32_t>(threshold), scale, threads);
}
}
