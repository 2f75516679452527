/* Causal attention by negative L1 distance over the best few keys, and its gradient.
 *
 * The eager form is models/parts/tropical_kernel.py's, the reference and the fallback. For one query
 *
 *   -|q - k|_1 = 2 (sum_d min(q_d, k_d) - (sum_d q_d) / 2 - (sum_d k_d) / 2),
 *
 * so that a coordinate costs one minimum and one addition, which different units of the processor do. BLOCK queries
 * meet TILE keys at a time, all sums in registers. A query keeps the keys that can still be among its best TOP in a
 * short buffer; when the buffer is full, the TOP-th best becomes the bound for those to come. The gradient touches
 * nothing but the keys that were chosen. Compile-time constant: ND, the width of a head.
 */
#include "lanes.h"
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#include <stdlib.h>

#define BLOCK 8
#define VECTORS 2
#define TILE (VECTORS * LANES)
#define ALIGNED(n) (((n) + LANES - 1) / LANES * LANES)

typedef float vu __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t viu __attribute__((vector_size(64), aligned(4), may_alias));

static const vi LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static inline v min_(v a, v b)
{
#ifdef __AVX512F__
    return (v)_mm512_min_ps((__m512)a, (__m512)b);
#else
    vi lower = a < b;
    return (v)(((vi)a & lower) | ((vi)b & ~lower));
#endif
}

/* Which lanes are true, as bits. */
static inline unsigned bits(vi mask)
{
#ifdef __AVX512F__
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX2__)
    union { vi whole; __m256 half[2]; } u = {mask};
    return (unsigned)_mm256_movemask_ps(u.half[0]) | (unsigned)_mm256_movemask_ps(u.half[1]) << 8;
#else
    unsigned out = 0;
    for (int l = 0; l < LANES; l++) out |= (unsigned)(mask[l] & 1) << l;
    return out;
#endif
}

/* The lanes of ``value`` that ``keep`` names go to the front of ``to``, which has room for all of them. */
static inline void keep_(vi value, unsigned keep, int32_t *to)
{
#ifdef __AVX512F__
    *(viu *)to = (vi)_mm512_maskz_compress_epi32((__mmask16)keep, (__m512i)value);
#else
    for (int n = 0; keep; keep &= keep - 1) to[n++] = value[__builtin_ctz(keep)];
#endif
}

/* Integers in the order of the floats whose bits they are. */
static inline vi ordered(vi x) { return x ^ ((x >> 31) & 0x7fffffff); }

/* The keys that one query may still choose: half its score, as ordered integers, and where they stand. */
typedef struct {
    int n, full;
    float bound; /* what a newcomer must reach */
    int32_t *score, *key;
} Candidates;

/* Drop all but the best ``top`` and what equals the last of them. */
static void best(Candidates *c, int top)
{
    if (c->n <= top) return;
    int n = c->n;
    vi low_ = (vi){} + 0x7fffffff, high_ = (vi){} + (int32_t)0x80000000;
    *(viu *)(c->score + n) = (vi){} + (int32_t)0x80000000; /* never counted: bounds below lie above it */
    for (int i = 0; i < n; i++) { /* vectorised by the compiler */ 
        int32_t s = c->score[i];
        low_[0] = s < low_[0] ? s : low_[0];
        high_[0] = s > high_[0] ? s : high_[0];
    }
    int64_t low = low_[0], high = (int64_t)high_[0] + 1; /* at least top reach low, fewer reach high */
    while (high - low > 1) {
        int32_t middle = (int32_t)(low + (high - low) / 2);
        int reach = 0;
        for (int i = 0; i < n; i += LANES) reach += __builtin_popcount(bits(*(viu *)(c->score + i) >= middle));
        if (reach >= top) low = middle;
        else high = middle;
        if (reach == top) break;
    }
    int kept = 0;
    for (int i = 0; i < n; i += LANES) {
        vi score = *(viu *)(c->score + i), key = *(viu *)(c->key + i);
        unsigned keep = bits(score >= (int32_t)low);
        keep_(score, keep, c->score + kept);
        keep_(key, keep, c->key + kept);
        kept += __builtin_popcount(keep);
    }
    c->n = kept;
    union { int32_t i; float f; } bound = {ordered((vi){} + (int32_t)low)[0]};
    c->bound = bound.f;
}
