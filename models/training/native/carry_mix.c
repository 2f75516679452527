/* Training batches of ten-digit additions, the same bits as models/training/addition_problems.py (the reference and the fallback).
 *
 * Compiled without value-changing optimisations: every double here is computed by one correctly rounded operation
 * from values that torch computes alike.
 */
#include <math.h>
#include <stdint.h>

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

#define GAMMA 0x9e3779b97f4a7c15ull

static const double POWER[11] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10};

static void carry_rich(uint64_t base, int max_digits, int64_t *a, int64_t *b)
{
#define U(k) ((double)(mix(base + (uint64_t)(k + 1) * GAMMA) >> 11) * 0x1p-53)
    int nd = 1 + (int)(U(3) * max_digits);
    int column = (int)(U(4) * nd);
    int kind = (int)(U(5) * 4);
    double full = POWER[nd];
    if (kind == 0) {
        uint64_t pair[2] = {(uint64_t)floor(U(8) * 9765625.0), (uint64_t)floor(U(9) * 9765625.0)};
        int64_t sum[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            int64_t power = 1;
            for (int c = 0; c < nd; c++, power *= 10) {
                sum[i] += power * (int64_t)(pair[i] % 5 + (c == column ? 5 : 0));
                pair[i] /= 5;
            }
        }
        *a = sum[0], *b = sum[1];
        return;
    }
    double low = nd == 1 ? 0.0 : full / 10;
    double a_limit = kind == 2 ? full - low : kind == 3 ? 10.0 : 1.0;
    double b_limit = kind == 2 ? 9.0 : kind == 3 ? 20.0 : POWER[nd < 3 ? nd : 3];
    double below = floor(U(6) * a_limit);
    double first = kind == 2 ? low + below : full - 1 - below;
    *a = (int64_t)(first < 0 ? 0 : first);
    *b = (int64_t)((1 + floor(U(7) * b_limit)) * (kind == 2 ? POWER[column] : 1.0));
}

/* One batch of one seed: tokens [33, rows], targets [12, rows]. */
static void one_seed(int64_t seed, int64_t step, int rows, int max_digits, double share, uint8_t *tokens, uint8_t *targets)
{
    uint64_t stream = mix(mix((uint64_t)seed + GAMMA) + (uint64_t)step * GAMMA);
    double limit = POWER[max_digits];
    for (int row = 0; row < rows; row++) {
        uint64_t base = mix(stream + (uint64_t)(row + 1) * GAMMA);
        int64_t a = (int64_t)(U(0) * limit), b = (int64_t)(U(1) * limit);
        if (U(2) < share) carry_rich(base, max_digits, &a, &b);
        uint8_t *t = tokens + row;
        uint64_t x = (uint64_t)a, y = (uint64_t)b, z = (uint64_t)(a + b);
        for (int i = 0; i < 10; i++, x /= 10, y /= 10) t[i * rows] = x % 10, t[(11 + i) * rows] = y % 10;
        t[10 * rows] = t[21 * rows] = 0;
        for (int i = 0; i < 11; i++, z /= 10) t[(22 + i) * rows] = targets[i * rows + row] = z % 10;
        targets[11 * rows + row] = 0;
    }
}

void batch(int seeds, const int64_t *seed, int64_t step, int rows, int max_digits, double share, uint8_t *tokens,
           uint8_t *targets)
{
    for (int s = 0; s < seeds; s++)
        one_seed(seed[s], step, rows, max_digits, share, tokens + (int64_t)s * 33 * rows, targets + (int64_t)s * 12 * rows);
}
