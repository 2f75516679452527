/* Causal attention by negative L1 distance over the best few keys, and its gradient.
 *
 * The eager form is models/transformer/parts/tropical_kernel.py's, the reference and the fallback. For one query
 *
 *   -|q - k|_1 = 2 (sum_d min(q_d, k_d) - (sum_d q_d) / 2 - (sum_d k_d) / 2),
 *
 * so that a coordinate costs one minimum and one addition, which different units of the processor do. BLOCK queries
 * meet TILE keys at a time, all sums in registers. A query keeps the keys that can still be among its best in a short
 * buffer; when the buffer is full, the last of the best becomes the bound that newcomers must reach. The gradient
 * touches nothing but the chosen keys. Compile-time constant: ND, the width of a head.
 */
#include "lanes.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#include <stdlib.h>

/* What the processor has: WORD floats in a register, and registers for the sums of BLOCK queries. */
#if defined(__AVX512F__)
#define WORD 16
#define BLOCK 4
#else
#define BLOCK 1
#ifdef __AVX__
#define WORD 8
#else
#define WORD 4
#endif
#endif
#define VECTORS 4
#define TILE (VECTORS * LANES) /* 64: a bit for each key fills a word */
#define FULL 128               /* candidates that are worth a new bound */
#define UP(n) (((n) + LANES - 1) / LANES * LANES)

/* Rows of queries, keys and values are taken WIDTH coordinates at a time. */
#define FITS(n) (ND % (n) == 0 && WORD >= (n))
#define WIDTH (FITS(16) ? 16 : FITS(8) ? 8 : FITS(4) ? 4 : FITS(2) ? 2 : 1)
#define PARTS (ND / WIDTH)

typedef float vu __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t viu __attribute__((vector_size(64), aligned(4), may_alias));
typedef float word __attribute__((vector_size(4 * WORD), aligned(4), may_alias));
typedef int32_t iword __attribute__((vector_size(4 * WORD), aligned(4), may_alias));
typedef float part __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ipart __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

static const vi LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

#if defined(__AVX2__)
typedef union {
    v whole;
    vi integers;
    __m256 half[2];
    __m256i integer_half[2];
} Halves;
#endif

static inline word min_(word a, word b)
{
#if defined(__AVX512F__)
    return (word)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (word)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (word)_mm_min_ps((__m128)a, (__m128)b);
#else
    iword lower = a < b;
    return (word)(((iword)a & lower) | ((iword)b & ~lower));
#endif
}

/* Loaded once, not with each use. */
static inline word in_register(word x)
{
#ifdef __AVX512F__
    __asm__("" : "+v"(x));
#endif
    return x;
}

/* Which lanes are not below the bound, as bits; a NaN is. */
static inline uint64_t reaches(v x, float bound)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(bound), _CMP_GE_OQ);
#elif defined(__AVX2__)
    Halves y = {x};
    __m256 b = _mm256_set1_ps(bound);
    uint64_t low = _mm256_movemask_ps(_mm256_cmp_ps(y.half[0], b, _CMP_GE_OQ));
    return low | (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(y.half[1], b, _CMP_GE_OQ)) << 8;
#else
    uint64_t out = 0;
    for (int l = 0; l < LANES; l++) out |= (uint64_t)(x[l] >= bound) << l;
    return out;
#endif
}

static inline uint64_t reaches_int(vi x, int32_t bound)
{
#if defined(__AVX512F__)
    return _mm512_cmp_epi32_mask((__m512i)x, _mm512_set1_epi32(bound), _MM_CMPINT_NLT);
#elif defined(__AVX2__)
    Halves y = {.integers = x};
    __m256i b = _mm256_set1_epi32(bound); /* there is only "greater" */
    uint64_t low = _mm256_movemask_ps((__m256)_mm256_cmpgt_epi32(b, y.integer_half[0]));
    return (low | (uint64_t)_mm256_movemask_ps((__m256)_mm256_cmpgt_epi32(b, y.integer_half[1])) << 8) ^ 0xffff;
#else
    uint64_t out = 0;
    for (int l = 0; l < LANES; l++) out |= (uint64_t)(x[l] >= bound) << l;
    return out;
#endif
}

/* The lanes of ``value`` that ``keep`` names go to the front of ``to``, which has room for all sixteen. */
static inline void keep_(vi value, uint64_t keep, int32_t *to)
{
#ifdef __AVX512F__
    *(viu *)to = (viu)_mm512_maskz_compress_epi32((__mmask16)keep, (__m512i)value);
#else
    for (int n = 0; keep; keep &= keep - 1) to[n++] = value[__builtin_ctzll(keep)];
#endif
}

static inline float sum_(part x)
{
#if defined(__AVX512F__) && ND % 16 == 0
    return _mm512_reduce_add_ps((__m512)x);
#else
    float sum[WIDTH];
    memcpy(sum, &x, sizeof sum);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    return sum[0];
#endif
}

static inline v folded(v x, int half) { return __builtin_shuffle(x, (LANE + half) & (LANES - 1)); }

static inline float sum_of(v x)
{
    for (int half = LANES / 2; half; half /= 2) x += folded(x, half);
    return x[0];
}

static inline float most_of(v x)
{
    for (int half = LANES / 2; half; half /= 2) x = max_(x, folded(x, half));
    return x[0];
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
    *(viu *)(c->score + n) = (vi){} + INT32_MIN; /* what lies behind the last one reaches no bound */
    vi least = (vi){} + INT32_MAX, most = (vi){} + INT32_MIN;
    for (int i = 0; i < n; i += LANES) {
        vi s = *(viu *)(c->score + i), below = (LANE < n - i) & (s < least), above = s > most;
        least = (s & below) | (least & ~below), most = (s & above) | (most & ~above);
    }
    int32_t low = INT32_MAX, highest = INT32_MIN;
    for (int l = 0; l < LANES; l++) {
        low = least[l] < low ? least[l] : low;
        highest = most[l] > highest ? most[l] : highest;
    }
    int64_t high = (int64_t)highest + 1; /* at least ``top`` scores reach low, fewer reach high */
    while (high - low > 1) {
        int32_t middle = (int32_t)(low + (high - low) / 2);
        int reach = 0;
        for (int i = 0; i < n; i += LANES) reach += __builtin_popcountll(reaches_int(*(viu *)(c->score + i), middle));
        int enough = reach >= top; /* no branch, which could not be foreseen */
        low = enough ? middle : low;
        high = enough ? high : middle;
        if (reach == top) break;
    }
    int kept = 0;
    for (int i = 0; i < n; i += LANES) {
        vi score = *(viu *)(c->score + i), key = *(viu *)(c->key + i);
        uint64_t keep = reaches_int(score, low);
        keep_(score, keep, c->score + kept);
        keep_(key, keep, c->key + kept);
        kept += __builtin_popcountll(keep);
    }
    c->n = kept;
    c->full = c->full > 2 * kept ? c->full : 2 * kept; /* many equal ones */
    vi bound = ordered((vi){} + low);
    memcpy(&c->bound, &bound, sizeof c->bound);
}

static inline void offer(Candidates *c, const v *score, uint64_t keep, int first, int top)
{
    for (int b = 0; b < VECTORS; b++, keep >>= LANES) {
        uint64_t here = keep & 0xffff;
        keep_(ordered((vi)score[b]), here, c->score + c->n);
        keep_(LANE + first + b * LANES, here, c->key + c->n);
        c->n += __builtin_popcountll(here);
    }
    if (c->n >= c->full) keep_best(c, top);
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

/* Half the scores of a block of queries against a tile of keys, and which of them reach the queries' bounds. ``one`` is
 * 1: where a processor adds and takes minima in the same unit but multiplies in another, a fused multiplication by one
 * is an addition for nothing. */
static __attribute__((noinline)) void score_tile(float query[BLOCK][ND], const float *own, const float *tile,
                                                 const float *half, float one, const Candidates *candidates,
                                                 v score[BLOCK][VECTORS], uint64_t reach[BLOCK])
{
    enum { WORDS = TILE / WORD };
    word sum[BLOCK][WORDS];
    for (int a = 0; a < BLOCK; a++)
        for (int b = 0; b < WORDS; b++) sum[a][b] = *(word *)(half + b * WORD) + own[a];
    for (int d = 0; d < ND; d++) {
        word key[WORDS];
        for (int b = 0; b < WORDS; b++) key[b] = in_register(*(word *)(tile + d * TILE + b * WORD));
        for (int a = 0; a < BLOCK; a++)
            for (int b = 0; b < WORDS; b++) sum[a][b] += one * min_(query[a][d] - (word){}, key[b]);
    }
    for (int a = 0; a < BLOCK; a++) {
        reach[a] = 0;
        for (int b = 0; b < WORDS; b++) *((word *)score[a] + b) = sum[a][b] + 0.0f; /* -0 becomes 0 */
        for (int b = 0; b < VECTORS; b++) reach[a] |= reaches(score[a][b], candidates[a].bound) << b * LANES;
    }
}

/* Softmax over the candidates, whose scores become weights in place. */
static void normalise(Candidates *c, float scale)
{
    float *p = (float *)c->score;
    v highest = splat(-INFINITY), sum = splat(0);
    for (int i = 0; i < c->n; i += LANES) {
        vi inside = LANE < c->n - i;
        v s = (v)((ordered(*(viu *)(c->score + i)) & inside) | ((vi)splat(-INFINITY) & ~inside));
        highest = max_(highest, s);
        *(vu *)(p + i) = s;
    }
    float peak = most_of(highest);
    for (int i = 0; i < c->n; i += LANES) {
        v e = select_(LANE < c->n - i, exp_((*(vu *)(p + i) - peak) * (2.0f / scale)));
        sum += e;
        *(vu *)(p + i) = e;
    }
    v inverse = splat(1.0f / sum_of(sum));
    for (int i = 0; i < c->n; i += LANES) *(vu *)(p + i) *= inverse;
}

/* One (batch, head) pair. */
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
            candidates[a].n = 0, candidates[a].full = 2 * top > FULL ? 2 * top : FULL, candidates[a].bound = -INFINITY;
        }
        int place = before + (int)i; /* of the first query among the keys */
        for (int j = 0; j < place + rows; j += TILE) {
            v score[BLOCK][VECTORS];
            uint64_t reach[BLOCK];
            score_tile(query, own, packed + (int64_t)j * ND, half + j, shape->one, candidates, score, reach);
            for (int a = 0; a < rows; a++) {
                int seen = place + a + 1 - j; /* keys of this tile that do not come after the query */
                uint64_t keep = seen >= TILE ? reach[a] : seen > 0 ? reach[a] & ((1ull << seen) - 1) : 0;
                if (keep) offer(candidates + a, score[a], keep, j, top);
            }
        }
        for (int a = 0; a < rows; a++) {
            Candidates *c = candidates + a;
            int64_t row = i + a;
            keep_best(c, top);
            normalise(c, shape->scale);
            const float *p = (const float *)c->score;
            part out[PARTS];
            for (int e = 0; e < PARTS; e++) out[e] = (part){};
            for (int l = 0; l < c->n; l++)
                for (int e = 0; e < PARTS; e++) out[e] += p[l] * *(part *)(value + c->key[l] * shape->v.row + e * WIDTH);
            for (int e = 0; e < PARTS; e++) *(part *)(z + row * shape->z.row + e * WIDTH) = out[e];
            count[row] = c->n;
            most = c->n > most ? c->n : most;
            if (c->n <= shape->room) {
                memcpy(key + row * shape->room, c->key, sizeof(int32_t) * c->n);
                memcpy(weight + row * shape->room, p, sizeof(float) * c->n);
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
        for (int a = 0; a < BLOCK; a++) {
            candidates[a].score = buffer + 2 * a * length;
            candidates[a].key = buffer + (2 * a + 1) * length;
        }
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

/* Gradients: d_q is written, d_k and d_v are added to; each has the strides of q, k and v. -1 if there is no memory. */
int backward(int64_t first, int64_t last, const Shape *shape, const float *q, const float *k, const float *value,
             const float *d_z, const int32_t *key, const float *weight, const int32_t *count, float *d_q, float *d_k,
             float *d_v)
{
    float inverse = 1.0f / shape->scale, *d_weight = malloc(sizeof(float) * shape->room);
    if (!d_weight) return -1;
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
            float center = 0; /* the mean gradient of the weights */
            for (int c = 0; c < n; c++) {
                part along = {};
                for (int e = 0; e < PARTS; e++) along += g[e] * *(part *)(v_ + chosen[c] * shape->v.row + e * WIDTH);
                d_weight[c] = sum_(along);
                center += p[c] * d_weight[c];
            }
            for (int c = 0; c < n; c++) {
                float *to_v = d_v_ + chosen[c] * shape->v.row, *to_k = d_k_ + chosen[c] * shape->k.row;
                const float *from = k_ + chosen[c] * shape->k.row;
                part d_score = p[c] * (d_weight[c] - center) * inverse - (part){};
                for (int e = 0; e < PARTS; e++) {
                    *(part *)(to_v + e * WIDTH) += p[c] * g[e];
                    part y = *(part *)(from + e * WIDTH);
                    part up = (part)((ipart)d_score & (x[e] > y)), down = (part)((ipart)d_score & (x[e] < y));
                    part along = up - down; /* of the key; the query's is the opposite */
                    d_x[e] -= along;
                    *(part *)(to_k + e * WIDTH) += along;
                }
            }
            for (int e = 0; e < PARTS; e++) *(part *)(d_q_ + i * shape->q.row + e * WIDTH) = d_x[e];
        }
    }
    free(d_weight);
    return 0;
}
