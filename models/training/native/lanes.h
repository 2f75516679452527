/* Sixteen rows as one vector, and the elementary functions that the training kernels share. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
typedef float v __attribute__((vector_size(64), aligned(64)));
typedef int32_t vi __attribute__((vector_size(64), aligned(64)));

static inline v splat(float x) { return x - (v){}; }
static inline v select_(vi mask, v x) { return (v)((vi)x & mask); }
static inline v max_(v a, v b)
{
    vi higher = a > b;
    return (v)(((vi)a & higher) | ((vi)b & ~higher));
}

/* exp to 2 ulp: 2^k times a polynomial on [-ln2/2, ln2/2]; arguments are at most 0 here, underflow goes to 0. */
static inline v exp_(v x)
{
    x = (v)(((vi)x & (x > -87.0f)) | ((vi)splat(-87.0f) & ~(x > -87.0f)));
    v t = x * 1.44269504f;
    vi k = __builtin_convertvector(t - 0.5f, vi); /* t <= 0: truncation of t - 0.5 rounds to nearest */
    v kf = __builtin_convertvector(k, v);
    v f = (x - kf * 0.693145752f) - kf * 1.42860677e-6f;
    v p = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * (0.00833333333f + f * 0.00138888889f)))));
    return p * (v)((k + 127) << 23);
}

static inline v inverse_sqrt(v x)
{
    v out;
    for (int l = 0; l < LANES; l++) out[l] = 1.0f / __builtin_sqrtf(x[l]);
    return out;
}

/* x Phi(x) and its derivative. Phi from Abramowitz and Stegun 7.1.26, absolute error 1.5e-7; one exponential serves both. */
static inline void gelu(v x, v *value, v *slope)
{
    v magnitude = (v)((vi)x & 0x7fffffff);
    v e = exp_(-0.5f * x * x);
    v t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * magnitude);
    v tail = 0.5f * e * t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    vi negative = x < 0.0f;
    v phi = (v)(((vi)tail & negative) | ((vi)(1.0f - tail) & ~negative));
    *value = x * phi;
    *slope = phi + x * e * 0.39894228f;
}

static inline float total(v x)
{
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += x[l];
    return sum;
}

static void sum_lanes(const v *from, float *to, int n, float scale)
{
    for (int i = 0; i < n; i++) to[i] = scale * total(from[i]);
}
