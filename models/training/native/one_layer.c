/* Loss and gradient of a one-layer decoder whose attention may depend on the tokens, one seed, one batch.
 *
 * The model is models/training/one_layer.py's: gains and biases of the norms are folded into the matrices after them,
 * scores and values go through as many numbers as their factors have ranks. Rows are taken sixteen at a time as one
 * vector; all gradients are accumulated by lane and summed at the end. Shapes are compile-time constants:
 *
 *   NQ queries, NP positions, FIRST first query, ND residual dimensions, NM units, NV tokens (at most 16), NH heads,
 *   NK numbers a key, NR numbers a value; CENTRE 1 for LayerNorm and 0 for RMSNorm; BIAS 1 if there are biases
 */
#include "lanes.h"

/* All weights of one seed, or their gradients, in the order of models/training/one_layer.py's Folded. */
typedef struct {
    float *embed, *place, *w_q, *w_k, *w_v, *w_o, *w_in, *w_out, *w_u, *b_q, *b_k, *b_v, *b_o, *b_in, *b_out, *b_u;
} weights;

typedef struct {
    v embed[NV][ND], place[NP][ND], w_q[NH][ND][NK], w_k[NH][ND][NK], w_v[NH][ND][NR], w_o[NH][NR][ND];
    v w_in[ND][NM], w_out[NM][ND], w_u[ND][NV];
    v b_q[NH][NK], b_k[NH][NK], b_v[NH][NR], b_o[ND], b_in[NM], b_out[ND], b_u[NV];
} lanes;

/* x / rms(x), or (x - mean) / std for LayerNorm; returns the inverse. */
static inline v normalise(const v *x, v *out, float eps)
{
    v mean = splat(0.0f), square = splat(0.0f);
    if (CENTRE) {
        for (int d = 0; d < ND; d++) mean += x[d];
        mean *= 1.0f / ND;
    }
    for (int d = 0; d < ND; d++) out[d] = x[d] - mean, square += out[d] * out[d];
    v inverse = inverse_sqrt(square * (1.0f / ND) + eps);
    for (int d = 0; d < ND; d++) out[d] *= inverse;
    return inverse;
}

/* Adds to d_x the gradient that arrives at the normalised values. */
static inline void normalise_back(const v *normalised, v inverse, const v *d_normalised, v *d_x)
{
    v along = splat(0.0f), mean = splat(0.0f);
    for (int d = 0; d < ND; d++) {
        along += d_normalised[d] * normalised[d];
        if (CENTRE) mean += d_normalised[d];
    }
    along *= 1.0f / ND, mean *= 1.0f / ND;
    for (int d = 0; d < ND; d++) d_x[d] += inverse * (d_normalised[d] - mean - along * normalised[d]);
}

/* With predicted [NQ, rows] given, writes the most likely tokens there and stops before loss and gradient. */
static void one_seed(int rows, const uint8_t *tokens, const uint8_t *targets, float eps, const weights *w, float *loss,
                     const weights *gradient, uint8_t *predicted)
{
    static __thread lanes a; /* gradients by lane */
    static __thread v x[NP][ND], normal[NP][ND], inverse[NP], key[NH][NP][NK], value[NH][NP][NR];
    static __thread v d_x[NP][ND], d_normal[NP][ND], d_key[NH][NP][NK], d_value[NH][NP][NR], pattern[NH][NP];
    v a_loss = splat(0.0f), table[ND];
    memset(&a, 0, sizeof a);
    for (int d = 0; d < ND; d++)
        for (int c = 0; c < LANES; c++) table[d][c] = c < NV ? w->embed[c * ND + d] : 0;

    for (int row = 0; row < rows; row += LANES) {
        vi token[NP];
        memset(d_x, 0, sizeof d_x), memset(d_normal, 0, sizeof d_normal);
        memset(d_key, 0, sizeof d_key), memset(d_value, 0, sizeof d_value);
        for (int j = 0; j < NP; j++) {
            for (int l = 0; l < LANES; l++) token[j][l] = tokens[j * rows + row + l];
            for (int d = 0; d < ND; d++) x[j][d] = __builtin_shuffle(table[d], token[j]) + w->place[j * ND + d];
            inverse[j] = normalise(x[j], normal[j], eps);
            for (int h = 0; h < NH; h++) {
                for (int r = 0; r < NK; r++) {
                    v sum = splat(BIAS ? w->b_k[h * NK + r] : 0.0f);
                    for (int d = 0; d < ND; d++) sum += w->w_k[(h * ND + d) * NK + r] * normal[j][d];
                    key[h][j][r] = sum;
                }
                for (int r = 0; r < NR; r++) {
                    v sum = splat(BIAS ? w->b_v[h * NR + r] : 0.0f);
                    for (int d = 0; d < ND; d++) sum += w->w_v[(h * ND + d) * NR + r] * normal[j][d];
                    value[h][j][r] = sum;
                }
            }
        }
        v product = splat(1.0f), gap = splat(0.0f);
        for (int q = 0; q < NQ; q++) {
            int here = FIRST + q, seen = here + 1;
            v query[NH][NK], z[NH][NR], y[ND];
            for (int d = 0; d < ND; d++) y[d] = x[here][d] + (BIAS ? w->b_o[d] : 0.0f);
            for (int h = 0; h < NH; h++) {
                for (int r = 0; r < NK; r++) {
                    v sum = splat(BIAS ? w->b_q[h * NK + r] : 0.0f);
                    for (int d = 0; d < ND; d++) sum += w->w_q[(h * ND + d) * NK + r] * normal[here][d];
                    query[h][r] = sum;
                }
                v top = splat(-3e38f), sum = splat(0.0f);
                for (int j = 0; j < seen; j++) {
                    v score = query[h][0] * key[h][j][0];
                    for (int r = 1; r < NK; r++) score += query[h][r] * key[h][j][r];
                    pattern[h][j] = score;
                    top = max_(score, top);
                }
                for (int r = 0; r < NR; r++) z[h][r] = splat(0.0f);
                for (int j = 0; j < seen; j++) {
                    v e = exp_(pattern[h][j] - top);
                    pattern[h][j] = e;
                    sum += e;
                    for (int r = 0; r < NR; r++) z[h][r] += e * value[h][j][r];
                }
                v scale = 1.0f / sum;
                for (int j = 0; j < seen; j++) pattern[h][j] *= scale;
                for (int r = 0; r < NR; r++) {
                    z[h][r] *= scale;
                    for (int d = 0; d < ND; d++) y[d] += w->w_o[(h * NR + r) * ND + d] * z[h][r];
                }
            }
            v middle[ND], unit[NM], slope[NM], y2[ND], last[ND], p[NV], top = splat(-3e38f);
            v i1 = normalise(y, middle, eps);
            for (int d = 0; d < ND; d++) y2[d] = y[d] + (BIAS ? w->b_out[d] : 0.0f);
            for (int m = 0; m < NM; m++) {
                v pre = splat(BIAS ? w->b_in[m] : 0.0f);
                for (int d = 0; d < ND; d++) pre += w->w_in[d * NM + m] * middle[d];
                gelu(pre, &unit[m], &slope[m]);
                for (int d = 0; d < ND; d++) y2[d] += w->w_out[m * ND + d] * unit[m];
            }
            v i2 = normalise(y2, last, eps);
            for (int c = 0; c < NV; c++) {
                p[c] = splat(BIAS ? w->b_u[c] : 0.0f);
                for (int d = 0; d < ND; d++) p[c] += w->w_u[d * NV + c] * last[d];
                top = max_(p[c], top);
            }
            if (predicted) {
                vi best = (vi){} + 255;
                for (int c = NV - 1; c >= 0; c--) best = (best & ~(p[c] >= top)) | ((vi){} + c & (p[c] >= top));
                for (int c = 0; c < NV; c++) best |= (p[c] != p[c]) & 255;
                for (int l = 0; l < LANES; l++) predicted[q * rows + row + l] = best[l];
                continue;
            }
            v sum = splat(0.0f);
            vi target;
            for (int l = 0; l < LANES; l++) target[l] = targets[q * rows + row + l];
            for (int c = 0; c < NV; c++) {
                v shifted = p[c] - top;
                gap += select_(target == c, shifted);
                p[c] = exp_(shifted);
                sum += p[c];
            }
            product *= sum; /* at most NV^NQ: one logarithm for all queries */

            /* Backward, by the same path. */
            v scale = 1.0f / sum, d_last[ND], d_y[ND], d_middle[ND];
            for (int c = 0; c < NV; c++) {
                p[c] = p[c] * scale - select_(target == c, splat(1.0f));
                if (BIAS) a.b_u[c] += p[c];
            }
            for (int d = 0; d < ND; d++) {
                d_last[d] = splat(0.0f), d_y[d] = splat(0.0f), d_middle[d] = splat(0.0f);
                for (int c = 0; c < NV; c++) d_last[d] += w->w_u[d * NV + c] * p[c], a.w_u[d][c] += last[d] * p[c];
            }
            normalise_back(last, i2, d_last, d_y);
            for (int d = 0; d < ND; d++)
                if (BIAS) a.b_out[d] += d_y[d];
            for (int m = 0; m < NM; m++) {
                v d_unit = splat(0.0f);
                for (int d = 0; d < ND; d++) d_unit += w->w_out[m * ND + d] * d_y[d], a.w_out[m][d] += unit[m] * d_y[d];
                v d_pre = d_unit * slope[m];
                if (BIAS) a.b_in[m] += d_pre;
                for (int d = 0; d < ND; d++) d_middle[d] += w->w_in[d * NM + m] * d_pre, a.w_in[d][m] += middle[d] * d_pre;
            }
            normalise_back(middle, i1, d_middle, d_y);
            for (int d = 0; d < ND; d++) {
                d_x[here][d] += d_y[d];
                if (BIAS) a.b_o[d] += d_y[d];
            }
            for (int h = 0; h < NH; h++) {
                v d_z[NR], d_query[NK], mean = splat(0.0f);
                for (int r = 0; r < NK; r++) d_query[r] = splat(0.0f);
                for (int r = 0; r < NR; r++) {
                    d_z[r] = splat(0.0f);
                    for (int d = 0; d < ND; d++)
                        d_z[r] += w->w_o[(h * NR + r) * ND + d] * d_y[d], a.w_o[h][r][d] += z[h][r] * d_y[d];
                    mean += d_z[r] * z[h][r]; /* the pattern's gradient, averaged by the pattern */
                }
                for (int j = 0; j < seen; j++) {
                    v weight = pattern[h][j], d_weight = -mean;
                    for (int r = 0; r < NR; r++)
                        d_weight += d_z[r] * value[h][j][r], d_value[h][j][r] += weight * d_z[r];
                    v d_score = weight * d_weight;
                    for (int r = 0; r < NK; r++)
                        d_query[r] += d_score * key[h][j][r], d_key[h][j][r] += d_score * query[h][r];
                }
                for (int r = 0; r < NK; r++) {
                    if (BIAS) a.b_q[h][r] += d_query[r];
                    for (int d = 0; d < ND; d++) {
                        a.w_q[h][d][r] += normal[here][d] * d_query[r];
                        d_normal[here][d] += w->w_q[(h * ND + d) * NK + r] * d_query[r];
                    }
                }
            }
        }
        if (predicted) continue;
        for (int j = 0; j < NP; j++) {
            for (int h = 0; h < NH; h++) {
                for (int r = 0; r < NK; r++) {
                    if (BIAS) a.b_k[h][r] += d_key[h][j][r];
                    for (int d = 0; d < ND; d++) {
                        a.w_k[h][d][r] += normal[j][d] * d_key[h][j][r];
                        d_normal[j][d] += w->w_k[(h * ND + d) * NK + r] * d_key[h][j][r];
                    }
                }
                for (int r = 0; r < NR; r++) {
                    if (BIAS) a.b_v[h][r] += d_value[h][j][r];
                    for (int d = 0; d < ND; d++) {
                        a.w_v[h][d][r] += normal[j][d] * d_value[h][j][r];
                        d_normal[j][d] += w->w_v[(h * ND + d) * NR + r] * d_value[h][j][r];
                    }
                }
            }
            normalise_back(normal[j], inverse[j], d_normal[j], d_x[j]);
            for (int d = 0; d < ND; d++) a.place[j][d] += d_x[j][d];
            for (int c = 0; c < NV; c++) {
                vi is = token[j] == c;
                for (int d = 0; d < ND; d++) a.embed[c][d] += select_(is, d_x[j][d]);
            }
        }
        for (int l = 0; l < LANES; l++) a_loss[l] += logf(product[l]) - gap[l];
    }
    if (predicted) return;
    float mean = 1.0f / ((float)rows * NQ);
    *loss = mean * total(a_loss);
#define SUM(name) sum_lanes((const v *)a.name, gradient->name, sizeof a.name / sizeof(v), mean)
    SUM(embed), SUM(place), SUM(w_q), SUM(w_k), SUM(w_v), SUM(w_o), SUM(w_in), SUM(w_out), SUM(w_u);
    if (BIAS) SUM(b_q), SUM(b_k), SUM(b_v), SUM(b_o), SUM(b_in), SUM(b_out), SUM(b_u);
}

static weights at(weights w, int64_t s)
{
    const int64_t key = NH * NK, read = NH * NR;
    w.embed += s * NV * ND, w.place += s * NP * ND, w.w_q += s * key * ND, w.w_k += s * key * ND;
    w.w_v += s * read * ND, w.w_o += s * read * ND, w.w_in += s * ND * NM, w.w_out += s * NM * ND, w.w_u += s * ND * NV;
    if (BIAS) {
        w.b_q += s * key, w.b_k += s * key, w.b_v += s * read, w.b_o += s * ND, w.b_in += s * NM, w.b_out += s * ND;
        w.b_u += s * NV;
    }
    return w;
}

/* All arrays have a leading seed axis and are contiguous; tokens [seed, NP, rows], targets [seed, NQ, rows]. */
void loss_and_gradient(int seeds, int rows, const uint8_t *tokens, const uint8_t *targets, float eps, weights *w,
                       float *loss, weights *gradient)
{
    for (int s = 0; s < seeds; s++) {
        weights mine = at(*w, s), back = at(*gradient, s);
        one_seed(rows, tokens + (int64_t)s * NP * rows, targets + (int64_t)s * NQ * rows, eps, &mine, loss + s, &back, NULL);
    }
}

/* The most likely tokens, [seed, NQ, rows]. */
void predictions(int seeds, int rows, const uint8_t *tokens, float eps, weights *w, uint8_t *predicted)
{
    for (int s = 0; s < seeds; s++) {
        weights mine = at(*w, s);
        one_seed(rows, tokens + (int64_t)s * NP * rows, NULL, eps, &mine, NULL, NULL, predicted + (int64_t)s * NQ * rows);
    }
}
