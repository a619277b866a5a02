// Vectors of eight floats or four doubles, by the vector extensions of GCC and Clang; shared by all kernels.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace segue {

using i64 = int64_t;

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float vector __attribute__((vector_size(32)));
  typedef float loose __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint32_t hash __attribute__((vector_size(32)));
  typedef int32_t choice __attribute__((vector_size(32)));
};
template <>
struct Lanes<double> {
  typedef double vector __attribute__((vector_size(32)));
  typedef double loose __attribute__((vector_size(32), aligned(8), may_alias));
  typedef uint32_t hash __attribute__((vector_size(16)));
  typedef int64_t choice __attribute__((vector_size(32)));
};
template <class T>
using Vector = typename Lanes<T>::vector;
template <class T>
constexpr i64 LANES = 32 / sizeof(T);

template <class T>
inline Vector<T> load(const T* p) {
  return *reinterpret_cast<const typename Lanes<T>::loose*>(p);
}
template <class T>
inline void store(T* p, Vector<T> x) {
  *reinterpret_cast<typename Lanes<T>::loose*>(p) = x;
}

inline i64 round_up(i64 n, i64 unit) { return (n + unit - 1) / unit * unit; }

// Cephes' expf: within 2 units of the last place. Zero below e^-87; NaN stays NaN.
inline Vector<float> exponential(Vector<float> x) {
  typedef int32_t whole __attribute__((vector_size(32)));
  const Vector<float> magic = Vector<float>{} + 12582912.0f;  // adding it rounds to whole numbers
  const Vector<float> n = (x * 1.44269504f + magic) - magic;
  const Vector<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const whole bits = (__builtin_convertvector(n, whole) + 127) << 23;
  Vector<float> power;
  std::memcpy(&power, &bits, sizeof power);
  return x < -87.0f ? Vector<float>{} : p * power;
}
inline Vector<double> exponential(Vector<double> x) {
  Vector<double> y;
  for (i64 n = 0; n < LANES<double>; ++n) y[n] = std::exp(x[n]);
  return y;
}

// Memory aligned for vectors; null if the allocation failed.
template <class T>
class Buffer {
 public:
  explicit Buffer(i64 count)
      : base_(static_cast<T*>(std::aligned_alloc(64, round_up((count > 0 ? count : 1) * sizeof(T), 64)))) {}
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(base_); }
  operator T*() const { return base_; }

 private:
  T* base_;
};

}  // namespace segue
