/* Causal attention by negative L1 distance over the best few keys, and its gradient.
 *
 * The eager form is models/parts/tropical_kernel.py's, the reference and the fallback. For one query
 *
 *   -|q - k|_1 = 2 (sum_d min(q_d, k_d) - (sum_d q_d) / 2 - (sum_d k_d) / 2),
 *
 * so that a coordinate costs one minimum and one addition, which different units of the processor do. BLOCK queries
 * meet TILE keys at a time, all sums in registers. A query keeps the keys that can still be among its best in a short
 * buffer; when the buffer is full, the last of the best becomes the bound that newcomers must reach. The gradient
 * touches nothing but the chosen keys. Compile-time constant: ND, the width of a head.
 */
#include "lanes.h"
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#include <stdlib.h>

#ifndef BLOCK
#define BLOCK 8
#define VECTORS 2
#endif
#ifndef FULL
#define FULL 64
#endif
#define TILE (VECTORS * LANES)
#define UP(n) (((n) + LANES - 1) / LANES * LANES)

/* Rows of queries, keys and values are taken WIDTH coordinates at a time. */
#define WIDTH (ND % 16 == 0 ? 16 : ND % 8 == 0 ? 8 : ND % 4 == 0 ? 4 : ND % 2 == 0 ? 2 : 1)
#define PARTS (ND / WIDTH)

typedef float vu __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t viu __attribute__((vector_size(64), aligned(4), may_alias));
typedef float part __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ipart __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

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

/* Loaded once, not with each use. */
static inline v in_register(v x)
{
#ifdef __AVX512F__
    __asm__("" : "+v"(x));
#endif
    return x;
}

/* Which lanes are true, as bits. */
static inline unsigned bits(vi mask)
{
#ifdef __AVX512DQ__
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

/* The lanes of ``value`` that ``keep`` names go to the front of ``to``, which has room for all sixteen. */
static inline void keep_(vi value, unsigned keep, int32_t *to)
{
#ifdef __AVX512F__
    *(viu *)to = (viu)_mm512_maskz_compress_epi32((__mmask16)keep, (__m512i)value);
#else
    for (int n = 0; keep; keep &= keep - 1) to[n++] = value[__builtin_ctz(keep)];
#endif
}

static inline float sum_(part x)
{
    float sum[WIDTH];
    memcpy(sum, &x, sizeof sum);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    return sum[0];
}

/* Integers in the order of the floats that have these bits, and back. */
static inline vi ordered(vi x) { return x ^ ((x >> 31) & 0x7fffffff); }

/* The keys that one query may still choose: half of their scores, as ordered integers, and where they stand. */
typedef struct {
    int n, full;
    float bound; /* what a newcomer must reach */
    int32_t *score, *key;
} Candidates;

/* Keep the best ``top`` and all that equal the last of them. */
static void keep_best(Candidates *c, int top)
{
    int n = c->n;
    if (n <= top) return;
    vi least = (vi){} + INT32_MAX, most = (vi){} + INT32_MIN;
    for (int i = 0; i < n; i += LANES) {
        vi s = *(viu *)(c->score + i), inside = LANE < n - i, below = inside & (s < least), above = inside & (s > most);
        least = (s & below) | (least & ~below), most = (s & above) | (most & ~above);
    }
    int64_t low = INT32_MAX, high = INT32_MIN;
    for (int l = 0; l < LANES; l++) {
        low = least[l] < low ? least[l] : low;
        high = most[l] > high ? most[l] : high;
    }
    high++; /* at least ``top`` scores reach low, fewer reach high */
    unsigned tail = n % LANES ? (1u << n % LANES) - 1 : 0xffff;
    while (high - low > 1) {
        int32_t middle = (int32_t)(low + (high - low) / 2);
        int reach = 0, i = 0;
        for (; i + LANES < n; i += LANES) reach += __builtin_popcount(bits(*(viu *)(c->score + i) >= middle));
        reach += __builtin_popcount(tail & bits(*(viu *)(c->score + i) >= middle));
        if (reach >= top) low = middle;
        else high = middle;
        if (reach == top) break;
    }
    int kept = 0;
    for (int i = 0; i < n; i += LANES) {
        vi score = *(viu *)(c->score + i), key = *(viu *)(c->key + i);
        unsigned keep = bits(score >= (int32_t)low) & (i + LANES < n ? 0xffff : tail);
        keep_(score, keep, c->score + kept);
        keep_(key, keep, c->key + kept);
        kept += __builtin_popcount(keep);
    }
    c->n = kept;
    c->full = c->full > 2 * kept ? c->full : 2 * kept; /* many equal ones */
    vi bound = ordered((vi){} + (int32_t)low);
    memcpy(&c->bound, &bound, sizeof c->bound);
}

static inline void offer(Candidates *c, v score, vi seen, int first)
{
    unsigned keep = bits((score >= c->bound) & seen); /* a NaN is no candidate */
    if (!keep) return;
    keep_(ordered((vi)(score + 0.0f)), keep, c->score + c->n); /* -0 counts as 0 */
    keep_(LANE + first, keep, c->key + c->n);
    c->n += __builtin_popcount(keep);
}

/* Batch, head and position strides, in floats; coordinates are neighbours. */
typedef struct {
    int64_t batch, head, row;
} Strides;

typedef struct {
    int64_t heads, queries, keys, top, room; /* room: choices that are stored a query */
    float scale, one;
    Strides q, k, v, z;
} Shape;

#define AT(array, s, problem) ((array) + (problem) / shape->heads * (s).batch + (problem) % shape->heads * (s).head)

/* Keys by tile, coordinate and key, and minus half their sums; all less ``center``, their mean rounded to integers. A
 * distance does not change when q and k move together, the rounding errors of its sums do. */
static void pack(const Shape *shape, const float *k, float center[ND], float *packed, float *half)
{
    for (int d = 0; d < ND; d++) center[d] = 0;
    for (int64_t j = 0; j < shape->keys; j++)
        for (int d = 0; d < ND; d++) center[d] += k[j * shape->k.row + d];
    for (int d = 0; d < ND; d++) center[d] = rintf(center[d] / shape->keys);
    for (int64_t j = 0; j < shape->keys; j++) {
        const float *row = k + j * shape->k.row;
        float *to = packed + j / TILE * TILE * ND + j % TILE, sum = 0;
        for (int d = 0; d < ND; d++) to[d * TILE] = row[d] - center[d], sum += row[d] - center[d];
        half[j] = -0.5f * sum;
    }
}

/* Half the scores of a block of queries against a tile of keys. ``one`` is 1: where a processor adds and takes minima
 * in the same unit, but multiplies in another, a fused multiplication by one is an addition for nothing. */
static __attribute__((noinline)) void score_tile(float query[BLOCK][ND], const float *own, const float *tile,
                                                 const float *half, float one, v score[BLOCK][VECTORS])
{
    v sum[BLOCK][VECTORS];
    for (int a = 0; a < BLOCK; a++)
        for (int b = 0; b < VECTORS; b++) sum[a][b] = *(vu *)(half + b * LANES) + own[a];
    for (int d = 0; d < ND; d++) {
        v key[VECTORS];
        for (int b = 0; b < VECTORS; b++) key[b] = in_register(*(vu *)(tile + d * TILE + b * LANES));
        for (int a = 0; a < BLOCK; a++)
            for (int b = 0; b < VECTORS; b++) sum[a][b] += one * min_(splat(query[a][d]), key[b]);
    }
    for (int a = 0; a < BLOCK; a++)
        for (int b = 0; b < VECTORS; b++) score[a][b] = sum[a][b];
}

static int one_problem(const Shape *shape, const float *q, const float *k, const float *value, float *z, int32_t *key,
                       float *weight, int32_t *count, float *packed, float *half, Candidates *candidates)
{
    int top = (int)shape->top, most = 0, before = (int)(shape->keys - shape->queries);
    float center[ND];
    pack(shape, k, center, packed, half);
    for (int64_t i = 0; i < shape->queries; i += BLOCK) {
        int rows = shape->queries - i < BLOCK ? (int)(shape->queries - i) : BLOCK;
        float query[BLOCK][ND], own[BLOCK];
        for (int a = 0; a < BLOCK; a++) {
            const float *row = q + (i + (a < rows ? a : rows - 1)) * shape->q.row;
            own[a] = 0;
            for (int d = 0; d < ND; d++) query[a][d] = row[d] - center[d], own[a] += query[a][d];
            own[a] *= -0.5f;
            Candidates *c = candidates + a;
            c->n = 0, c->full = 2 * top > FULL ? 2 * top : FULL, c->bound = -INFINITY;
        }
        int place = before + (int)i; /* of the first query among the keys */
        for (int j = 0; j < place + rows; j += TILE) {
            v score[BLOCK][VECTORS];
            score_tile(query, own, packed + (int64_t)j * ND, half + j, shape->one, score);
            for (int a = 0; a < rows; a++) {
                Candidates *c = candidates + a;
                for (int b = 0; b < VECTORS; b++) {
                    int first = j + b * LANES;
                    offer(c, score[a][b], LANE <= place + a - first, first);
                }
                if (c->n >= c->full) keep_best(c, top);
            }
        }
        for (int a = 0; a < rows; a++) {
            Candidates *c = candidates + a;
            keep_best(c, top);
            int n = c->n;
            int64_t row = i + a;
            count[row] = n;
            most = n > most ? n : most;
            v highest = splat(-INFINITY), sum = splat(0);
            float *p = (float *)c->score; /* in place: scores become weights */
            for (int l = 0; l < n; l += LANES) {
                v s = (v)ordered(*(viu *)(c->score + l));
                vi inside = LANE < n - l;
                highest = max_(highest, (v)(((vi)s & inside) | ((vi)splat(-INFINITY) & ~inside)));
                *(vu *)(p + l) = s;
            }
            float peak = -INFINITY;
            for (int l = 0; l < LANES; l++) peak = highest[l] > peak ? highest[l] : peak;
            for (int l = 0; l < n; l += LANES) {
                v e = exp_((*(vu *)(p + l) - peak) * (2.0f / shape->scale));
                e = select_(LANE < n - l, e);
                sum += e;
                *(vu *)(p + l) = e;
            }
            float inverse = 1.0f / total(sum);
            part out[PARTS];
            for (int e = 0; e < PARTS; e++) out[e] = (part){};
            for (int l = 0; l < n; l++) {
                const float *from = value + c->key[l] * shape->v.row;
                p[l] *= inverse;
                for (int e = 0; e < PARTS; e++) out[e] += p[l] * *(part *)(from + e * WIDTH);
            }
            for (int e = 0; e < PARTS; e++) *(part *)(z + row * shape->z.row + e * WIDTH) = out[e];
            if (n <= shape->room) {
                memcpy(key + row * shape->room, c->key, sizeof(int32_t) * n);
                memcpy(weight + row * shape->room, p, sizeof(float) * n);
            }
        }
    }
    return most;
}

/* Problems (batch * heads + head) first to last - 1. Returns the most keys that a query chose, which exceeds ``top``
 * where scores are equal; if it exceeds ``room``, the stored choices are incomplete. -1 if there is no memory. */
int forward(int64_t first, int64_t last, const Shape *shape, const float *q, const float *k, const float *value,
            float *z, int32_t *key, float *weight, int32_t *count)
{
    int64_t tiles = (shape->keys + TILE - 1) / TILE * TILE;
    int64_t length = tiles + TILE + 5 * LANES; /* not a power of two: the buffers' fronts share no cache set */
    float *packed = aligned_alloc(64, sizeof(float) * UP(tiles * (ND + 1)));
    int32_t *buffer = aligned_alloc(64, sizeof(int32_t) * 2 * BLOCK * length);
    int most = -1;
    if (packed && buffer) {
        Candidates candidates[BLOCK];
        for (int a = 0; a < BLOCK; a++) candidates[a].score = buffer + 2 * a * length, candidates[a].key = buffer + (2 * a + 1) * length;
        memset(packed, 0, sizeof(float) * tiles * (ND + 1));
        for (int64_t r = first; r < last; r++) {
            int64_t at = r * shape->queries;
            int chosen = one_problem(shape, AT(q, shape->q, r), AT(k, shape->k, r), AT(value, shape->v, r),
                                     AT(z, shape->z, r), key + at * shape->room, weight + at * shape->room, count + at,
                                     packed, packed + tiles * ND, candidates);
            most = chosen > most ? chosen : most;
        }
    }
    free(packed), free(buffer);
    return most;
}

/* Gradients: d_q is written, d_k and d_v are added to; each has the strides of q, k and v. */
void backward(int64_t first, int64_t last, const Shape *shape, const float *q, const float *k, const float *value,
              const float *d_z, const int32_t *key, const float *weight, const int32_t *count, float *d_q, float *d_k,
              float *d_v)
{
    float inverse = 1.0f / shape->scale;
    for (int64_t r = first; r < last; r++) {
        const float *q_ = AT(q, shape->q, r), *k_ = AT(k, shape->k, r), *v_ = AT(value, shape->v, r);
        float *d_q_ = AT(d_q, shape->q, r), *d_k_ = AT(d_k, shape->k, r), *d_v_ = AT(d_v, shape->v, r);
        const float *d_z_ = AT(d_z, shape->z, r);
        for (int64_t i = 0; i < shape->queries; i++) {
            int64_t row = r * shape->queries + i;
            const int32_t *chosen = key + row * shape->room;
            const float *p = weight + row * shape->room;
            int n = count[row];
            part x[PARTS], g[PARTS], d_x[PARTS];
            for (int e = 0; e < PARTS; e++) {
                x[e] = *(part *)(q_ + i * shape->q.row + e * WIDTH);
                g[e] = *(part *)(d_z_ + i * shape->z.row + e * WIDTH);
                d_x[e] = (part){};
            }
            part mean = {}; /* of the gradients of the weights; its sum over lanes */
            for (int c = 0; c < n; c++)
                for (int e = 0; e < PARTS; e++) mean += p[c] * g[e] * *(part *)(v_ + chosen[c] * shape->v.row + e * WIDTH);
            float center = sum_(mean);
            for (int c = 0; c < n; c++) {
                int64_t at = chosen[c];
                part along = {};
                for (int e = 0; e < PARTS; e++) along += g[e] * *(part *)(v_ + at * shape->v.row + e * WIDTH);
                float d_score = p[c] * (sum_(along) - center) * inverse;
                for (int e = 0; e < PARTS; e++) {
                    *(part *)(d_v_ + at * shape->v.row + e * WIDTH) += p[c] * g[e];
                    part y = *(part *)(k_ + at * shape->k.row + e * WIDTH), d = d_score - (part){};
                    part up = (part)((ipart)d & (x[e] > y)), down = (part)((ipart)d & (x[e] < y));
                    d_x[e] += down - up;
                    *(part *)(d_k_ + at * shape->k.row + e * WIDTH) += up - down;
                }
            }
            for (int e = 0; e < PARTS; e++) *(part *)(d_q_ + i * shape->q.row + e * WIDTH) = d_x[e];
        }
    }
}
