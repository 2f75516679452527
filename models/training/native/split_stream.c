/* Loss and gradient of a one-layer model with a split residual stream, one seed, one batch.
 *
 * The algebra is models/training/split_stream_kernel.py's, which is the reference and the fallback. Rows are taken
 * sixteen at a time as one vector; everything a row needs stays in registers and first-level cache, and all gradients
 * are accumulated by lane and summed at the end. Shapes are compile-time constants:
 *
 *   NQ queries, NP positions, FIRST first query, ND residual dimensions, NT of them for tokens, NM units,
 *   NV tokens (at most 16), NR signals (heads times rank of W_O)
 */
#include "lanes.h"

static void one_seed(int rows, const uint8_t *tokens, const uint8_t *targets, float eps, const float *mixing,
                     const float *sent, const float *own, const float *place, const float *right, const float *w_in,
                     const float *w_out, const float *w_u, float *loss, float *d_mixing, float *d_sent, float *d_own,
                     float *d_place, float *d_right, float *d_w_in, float *d_w_out, float *d_w_u)
{
    static __thread v a_mixing[NR][NQ][NP], a_sent[NR][NV], a_own[NV][NT], a_place[NQ][ND - NT], a_right[NR][ND];
    static __thread v a_in[ND][NM], a_out[NM][ND], a_u[ND][NV], a_loss;
    memset(a_mixing, 0, sizeof a_mixing), memset(a_sent, 0, sizeof a_sent), memset(a_own, 0, sizeof a_own);
    memset(a_place, 0, sizeof a_place), memset(a_right, 0, sizeof a_right), memset(a_in, 0, sizeof a_in);
    memset(a_out, 0, sizeof a_out), memset(a_u, 0, sizeof a_u), memset(&a_loss, 0, sizeof a_loss);
    v table_sent[NR], table_own[NT];
    for (int r = 0; r < NR; r++)
        for (int c = 0; c < LANES; c++) table_sent[r][c] = c < NV ? sent[r * NV + c] : 0;
    for (int d = 0; d < NT; d++)
        for (int c = 0; c < LANES; c++) table_own[d][c] = c < NV ? own[c * NT + d] : 0;

    for (int row = 0; row < rows; row += LANES) {
        vi token[NP];
        v arriving[NR][NP], d_arriving[NR][NP];
        for (int j = 0; j < NP; j++) {
            for (int l = 0; l < LANES; l++) token[j][l] = tokens[j * rows + row + l];
            for (int r = 0; r < NR; r++) arriving[r][j] = __builtin_shuffle(table_sent[r], token[j]);
        }
        memset(d_arriving, 0, sizeof d_arriving);
        v product = splat(1.0f), gap = splat(0.0f);
        for (int q = 0; q < NQ; q++) {
            int seen = FIRST + q + 1;
            v signal[NR], y[ND], pre[NM], h[NM], slope[NM], a[NM];
            for (int r = 0; r < NR; r++) {
                v s0 = splat(0.0f), s1 = splat(0.0f);
                const float *weight = mixing + (r * NQ + q) * NP;
                int j = 0;
                for (; j + 1 < seen; j += 2) s0 += weight[j] * arriving[r][j], s1 += weight[j + 1] * arriving[r][j + 1];
                for (; j < seen; j++) s0 += weight[j] * arriving[r][j];
                signal[r] = s0 + s1;
            }
            v square = splat(0.0f);
            for (int d = 0; d < ND; d++) {
                y[d] = d < NT ? __builtin_shuffle(table_own[d], token[FIRST + q]) : splat(place[q * (ND - NT) + d - NT]);
                for (int r = 0; r < NR; r++) y[d] += right[r * ND + d] * signal[r];
                square += y[d] * y[d];
            }
            v i1 = inverse_sqrt(square * (1.0f / ND) + eps);
            for (int m = 0; m < NM; m++) {
                a[m] = splat(0.0f);
                for (int d = 0; d < ND; d++) a[m] += w_in[d * NM + m] * y[d];
                pre[m] = a[m] * i1;
                gelu(pre[m], &h[m], &slope[m]);
            }
            v y2[ND];
            square = splat(0.0f);
            for (int d = 0; d < ND; d++) {
                y2[d] = y[d];
                for (int m = 0; m < NM; m++) y2[d] += w_out[m * ND + d] * h[m];
                square += y2[d] * y2[d];
            }
            v i2 = inverse_sqrt(square * (1.0f / ND) + eps);
            v b[NV], p[NV], top = splat(-3e38f);
            for (int c = 0; c < NV; c++) {
                b[c] = splat(0.0f);
                for (int d = 0; d < ND; d++) b[c] += w_u[d * NV + c] * y2[d];
                p[c] = b[c] * i2;
                vi higher = p[c] > top;
                top = (v)(((vi)p[c] & higher) | ((vi)top & ~higher));
            }
            v sum = splat(0.0f), target_logit = splat(0.0f);
            vi target;
            for (int l = 0; l < LANES; l++) target[l] = targets[q * rows + row + l];
            for (int c = 0; c < NV; c++) {
                v shifted = p[c] - top;
                target_logit += select_(target == c, shifted);
                p[c] = exp_(shifted);
                sum += p[c];
            }
            product *= sum, gap += target_logit; /* at most NV^NQ: one logarithm for all queries */

            /* Backward, by the same path. */
            v scale = 1.0f / sum, d_i2 = splat(0.0f), d_y2[ND], d_y[ND];
            for (int c = 0; c < NV; c++) {
                v d_logit = p[c] * scale - select_(target == c, splat(1.0f));
                d_i2 += d_logit * b[c];
                p[c] = d_logit * i2;
            }
            v along = d_i2 * i2 * i2 * i2 * (1.0f / ND);
            for (int d = 0; d < ND; d++) {
                d_y2[d] = -along * y2[d];
                for (int c = 0; c < NV; c++) d_y2[d] += w_u[d * NV + c] * p[c], a_u[d][c] += y2[d] * p[c];
                d_y[d] = d_y2[d];
            }
            v d_i1 = splat(0.0f);
            for (int m = 0; m < NM; m++) {
                v d_h = splat(0.0f);
                for (int d = 0; d < ND; d++) d_h += w_out[m * ND + d] * d_y2[d], a_out[m][d] += h[m] * d_y2[d];
                v d_pre = d_h * slope[m];
                d_i1 += d_pre * a[m];
                v d_a = d_pre * i1;
                for (int d = 0; d < ND; d++) a_in[d][m] += y[d] * d_a, d_y[d] += w_in[d * NM + m] * d_a;
            }
            along = d_i1 * i1 * i1 * i1 * (1.0f / ND);
            for (int d = 0; d < ND; d++) {
                d_y[d] -= along * y[d];
                if (d >= NT) a_place[q][d - NT] += d_y[d];
            }
            for (int c = 0; c < NV; c++) {
                vi is = token[FIRST + q] == c;
                for (int d = 0; d < NT; d++) a_own[c][d] += select_(is, d_y[d]);
            }
            for (int r = 0; r < NR; r++) {
                const float *weight = mixing + (r * NQ + q) * NP;
                v d_signal = splat(0.0f);
                for (int d = 0; d < ND; d++) d_signal += right[r * ND + d] * d_y[d], a_right[r][d] += signal[r] * d_y[d];
                for (int j = 0; j < seen; j++) {
                    a_mixing[r][q][j] += d_signal * arriving[r][j];
                    d_arriving[r][j] += weight[j] * d_signal;
                }
            }
        }
        for (int r = 0; r < NR; r++)
            for (int j = 0; j < NP; j++)
                for (int c = 0; c < NV; c++) a_sent[r][c] += select_(token[j] == c, d_arriving[r][j]);
        for (int l = 0; l < LANES; l++) a_loss[l] += logf(product[l]) - gap[l];
    }
    float mean = 1.0f / ((float)rows * NQ);
    *loss = mean * total(a_loss);
    sum_lanes(&a_mixing[0][0][0], d_mixing, NR * NQ * NP, mean);
    sum_lanes(&a_sent[0][0], d_sent, NR * NV, mean);
    sum_lanes(&a_own[0][0], d_own, NV * NT, mean);
    sum_lanes(&a_place[0][0], d_place, NQ * (ND - NT), mean);
    sum_lanes(&a_right[0][0], d_right, NR * ND, mean);
    sum_lanes(&a_in[0][0], d_w_in, ND * NM, mean);
    sum_lanes(&a_out[0][0], d_w_out, NM * ND, mean);
    sum_lanes(&a_u[0][0], d_w_u, ND * NV, mean);
}

#define TABLES mixing + s * NR * NQ * NP, sent + s * NR * NV, own + s * NV * NT, place + s * NQ * (ND - NT), \
    right + s * NR * ND, w_in + s * ND * NM, w_out + s * NM * ND, w_u + s * ND * NV
#define GRADIENTS d_mixing + s * NR * NQ * NP, d_sent + s * NR * NV, d_own + s * NV * NT, d_place + s * NQ * (ND - NT), \
    d_right + s * NR * ND, d_w_in + s * ND * NM, d_w_out + s * NM * ND, d_w_u + s * ND * NV

/* All arrays have a leading seed axis and are contiguous; tokens [seed, NP, rows], targets [seed, NQ, rows]. */
void loss_and_gradient(int seeds, int rows, const uint8_t *tokens, const uint8_t *targets, float eps,
                       const float *mixing, const float *sent, const float *own, const float *place, const float *right,
                       const float *w_in, const float *w_out, const float *w_u, float *loss, float *d_mixing,
                       float *d_sent, float *d_own, float *d_place, float *d_right, float *d_w_in, float *d_w_out,
                       float *d_w_u)
{
    for (int s = 0; s < seeds; s++)
        one_seed(rows, tokens + (int64_t)s * NP * rows, targets + (int64_t)s * NQ * rows, eps, TABLES, loss + s, GRADIENTS);
}
