/* Training batches of ten-digit additions, the same bits as models/training/addition_problems.py and
 * varied_length_problems.py (the references and the fallbacks).
 *
 * Compiled without value-changing optimisations: every double here is computed by one correctly rounded operation
 * from values that torch computes alike. Rows are counted in 64 bits. A digit count outside 1 to 10 is refused with -1
 * before anything is written: it would index the powers of ten.
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

#define U(k) ((double)(mix(base + (uint64_t)(k + 1) * GAMMA) >> 11) * 0x1p-53)

static void carry_rich(uint64_t base, int max_digits, int64_t *a, int64_t *b)
{
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
static void one_seed(int64_t seed, int64_t step, int64_t rows, int max_digits, double share, uint8_t *tokens,
                     uint8_t *targets)
{
    uint64_t stream = mix(mix((uint64_t)seed + GAMMA) + (uint64_t)step * GAMMA);
    double limit = POWER[max_digits];
    for (int64_t row = 0; row < rows; row++) {
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

int batch(int64_t seeds, const int64_t *seed, int64_t step, int64_t rows, int max_digits, double share, uint8_t *tokens,
          uint8_t *targets)
{
    if (max_digits < 1 || max_digits > 10) return -1;
    for (int64_t s = 0; s < seeds; s++)
        one_seed(seed[s], step, rows, max_digits, share, tokens + s * 33 * rows, targets + s * 12 * rows);
    return 0;
}

/* Problems that training must not meet: their fingerprints, sorted as signed numbers, and where each of 2^17 equal
 * ranges of them starts. */
static int is_held_out(int64_t a, int64_t b, const int64_t *fingerprints, const int32_t *starts)
{
    int64_t print = (int64_t)((uint64_t)a * GAMMA + (uint64_t)b);
    int64_t range = (print >> 47) + (1 << 16);
    for (int32_t i = starts[range]; i < starts[range + 1]; i++)
        if (fingerprints[i] == print) return 1;
    return 0;
}

enum { CHUNK = 64, HALF = 100000 };

/* Five digits each of `n` numbers below 10^5, units first; a loop over numbers, which compilers vectorise. */
static void five_digits(int n, uint32_t *x, uint8_t digit[5][CHUNK])
{
    for (int i = 0; i < 5; i++)
        for (int r = 0; r < n; r++) {
            uint32_t quotient = x[r] / 10;
            digit[i][r] = x[r] - 10 * quotient, x[r] = quotient;
        }
}

/* Digit counts uniform up to max_digits, both operands below that power of ten; the padded format, most significant
 * digit first, + 10, = 11, EOS 13. */
int varied_lengths(int64_t seeds, const int64_t *seed, int64_t step, int64_t rows, int max_digits,
                   const int64_t *fingerprints, const int32_t *starts, uint8_t *tokens, uint8_t *targets)
{
    if (max_digits < 1 || max_digits > 10) return -1;
    uint32_t half[4][CHUNK];        /* low and high half of a, then of b */
    uint8_t digit[4][5][CHUNK];     /* the same, so that digit[0] and digit[1] make ten columns */
    for (int64_t s = 0; s < seeds; s++, tokens += 33 * rows, targets += 12 * rows) {
        uint64_t stream = mix(mix((uint64_t)seed[s] + GAMMA) + (uint64_t)step * GAMMA);
        for (int64_t first = 0; first < rows; first += CHUNK) {
            int n = rows - first < CHUNK ? (int)(rows - first) : CHUNK;
            for (int r = 0; r < n; r++) {
                uint64_t base = mix(stream + (uint64_t)(first + r + 1) * GAMMA);
                double limit = POWER[1 + (int)(U(0) * max_digits)];
                int64_t a, b;
                int draw = 1;
                do {
                    a = (int64_t)(U(draw) * limit), b = (int64_t)(U(draw + 1) * limit), draw += 2;
                } while (is_held_out(a, b, fingerprints, starts));
                half[0][r] = a % HALF, half[1][r] = a / HALF, half[2][r] = b % HALF, half[3][r] = b / HALF;
            }
            for (int h = 0; h < 4; h++) five_digits(n, half[h], digit[h]);
            uint8_t *t = tokens + first, *z = targets + first, carry[CHUNK] = {0};
            for (int i = 0; i < 10; i++) {
                const uint8_t *x = digit[i / 5][i % 5], *y = digit[2 + i / 5][i % 5];
                uint8_t *left = t + (9 - i) * rows, *right = t + (20 - i) * rows;
                uint8_t *answer = t + (22 + i) * rows, *target = z + i * rows;
                for (int r = 0; r < n; r++) {
                    uint8_t sum = x[r] + y[r] + carry[r], over = sum >= 10;
                    left[r] = x[r], right[r] = y[r], answer[r] = target[r] = sum - 10 * over, carry[r] = over;
                }
            }
            for (int r = 0; r < n; r++) {
                t[10 * rows + r] = 10, t[21 * rows + r] = 11;
                t[32 * rows + r] = z[10 * rows + r] = carry[r], z[11 * rows + r] = 13;
            }
        }
    }
    return 0;
}
