"use strict";
/*
 * The functions that a GPT consists of, and their derivatives, written by hand, for nano.js.
 *
 * Each function y = f(x) has a partner, fBackward: from dy = dL/dy, the gradient of the loss L, it computes dx.
 *
 * B sequences of T positions are M = B T rows. C width   H heads of width D = C / H
 * An array with a matrix (rows, columns) holds row after row. Results go into arrays that exist already, so that a step
 * makes no new ones.
 */

/** A matrix within an array: element [i, j] is data[begin + i * down + j * right]. */
function matrix(data, rows, columns, begin = 0, down = columns) {
  return { data, rows, columns, begin, down, right: 1 };
}

function transposed({ data, rows, columns, begin, down, right }) {
  return { data, rows: columns, columns: rows, begin, down: right, right: down };
}

/**
 * y = x w^T, or y += : (M, K) and (N, K) -> (M, N), the sums over k of x[m, k] w[n, k].
 *
 * For 2 rows of x and 4 of w, all 8 sums run at once, so that each number that is read is used 4 times or 2. At the
 * edge of y, where fewer rows are left, the last one is taken again, and its sum stored again.
 */
function multiply({ data: X, rows: M, columns: K, begin, down, right }, w, y, add = false) {
  const { data: W, rows: N, begin: wBegin, down: wDown, right: wRight } = w;
  const Y = y.data;
  for (let m = 0; m < M; m += 2) {
    const m1 = Math.min(1, M - 1 - m);
    for (let n = 0; n < N; n += 4) {
      const n1 = Math.min(1, N - 1 - n), n2 = Math.min(2, N - 1 - n), n3 = Math.min(3, N - 1 - n);
      const x1 = m1 * down, w1 = n1 * wDown, w2 = n2 * wDown, w3 = n3 * wDown;
      const i = y.begin + m * y.down + n, j = i + m1 * y.down;
      let y0 = 0, y1 = 0, y2 = 0, y3 = 0, z0 = 0, z1 = 0, z2 = 0, z3 = 0;
      if (add) {
        y0 = Y[i]; y1 = Y[i + n1]; y2 = Y[i + n2]; y3 = Y[i + n3];
        z0 = Y[j]; z1 = Y[j + n1]; z2 = Y[j + n2]; z3 = Y[j + n3];
      }
      for (let k = 0, a = begin + m * down, b = wBegin + n * wDown; k < K; k++, a += right, b += wRight) {
        const p = X[a], q = X[a + x1], r = W[b], s = W[b + w1], t = W[b + w2], u = W[b + w3];
        y0 += p * r; y1 += p * s; y2 += p * t; y3 += p * u;
        z0 += q * r; z1 += q * s; z2 += q * t; z3 += q * u;
      }
      Y[i] = y0; Y[i + n1] = y1; Y[i + n2] = y2; Y[i + n3] = y3;
      Y[j] = z0; Y[j + n1] = z1; Y[j + n2] = z2; Y[j + n3] = z3;
    }
  }
}

/** y = x W^T, or y += : (M, K) -> (M, N), with a weight of shape (N, K). */
function linear(x, weight, y, M, add = false) {
  const [N, K] = weight.shape;
  multiply(matrix(x, M, K), matrix(weight.data, N, K), matrix(y, M, N), add);
}

/** dx = dy W, or dx += ; and dW += dy^T x. */
function linearBackward(dy, x, weight, dx, M, add = false) {
  const [N, K] = weight.shape;
  multiply(matrix(dy, M, N), transposed(matrix(weight.data, N, K)), matrix(dx, M, K), add);
  multiply(transposed(matrix(dy, M, N)), transposed(matrix(x, M, K)), matrix(weight.grad, N, K), true);
}

/** y = x r with r = 1 / sqrt(mean(x^2) + 1e-5), for each row of n numbers; r is kept for the derivative. */
function norm(x, y, r, rows, n) {
  for (let row = 0, begin = 0; row < rows; row++, begin += n) {
    let sum = 0;
    for (let i = begin; i < begin + n; i++) sum += x[i] * x[i];
    r[row] = 1 / Math.sqrt(sum / n + 1e-5);
    for (let i = begin; i < begin + n; i++) y[i] = x[i] * r[row];
  }
}

/** dx = r (dy - y mean(y dy)), or dx += . A longer x gives the same y, so the part of dy along y is removed. */
function normBackward(dy, y, r, dx, rows, n, add = false) {
  for (let row = 0, begin = 0; row < rows; row++, begin += n) {
    let mean = 0;
    for (let i = begin; i < begin + n; i++) mean += (y[i] * dy[i]) / n;
    for (let i = begin; i < begin + n; i++) dx[i] = r[row] * (dy[i] - y[i] * mean) + (add ? dx[i] : 0);
  }
}

/** p = e^x / sum(e^x), in place, for n numbers from `begin`; returns log(sum(e^x)). */
function softmax(x, begin, n) {
  let highest = -Infinity;
  let sum = 0;
  for (let i = begin; i < begin + n; i++) highest = Math.max(highest, x[i]);
  for (let i = begin; i < begin + n; i++) sum += x[i] = Math.exp(x[i] - highest);
  for (let i = begin; i < begin + n; i++) x[i] /= sum;
  return highest + Math.log(sum);
}

/**
 * Turn the pairs (i, i + D/2) of every head by the angles of its position, in place: (M, H, D). The derivative turns
 * back: sign -1.
 */
function turn(x, { cos, sin }, sign, M, T, H, D) {
  const half = D / 2;
  for (let row = 0; row < M * H; row++) {
    const t = Math.floor(row / H) % T;
    for (let i = row * D, j = t * half; i < row * D + half; i++, j++) {
      const first = x[i];
      x[i] = first * cos[j] - sign * x[i + half] * sin[j];
      x[i + half] = x[i + half] * cos[j] + sign * first * sin[j];
    }
  }
}

/** a = relu(h)^2; relu(h) takes the place of h. */
function relu2(h, a, n) {
  for (let i = 0; i < n; i++) {
    h[i] = h[i] > 0 ? h[i] : 0;
    a[i] = h[i] * h[i];
  }
}

/** dh = 2 relu(h) da, in place. */
function relu2Backward(da, h, n) {
  for (let i = 0; i < n; i++) da[i] *= 2 * h[i];
}

/** Of a matrix (M, C): the part (T, D) that belongs to head h of sequence b, with i = b H + h. */
function headOf(x, i, T, { n_head: H, n_embd: C }) {
  return matrix(x, T, C / H, Math.floor(i / H) * T * C + (i % H) * (C / H), C);
}

/** In each head o = p V, with p = softmax(Q K^T * scale), kept as (B, H, T, T). With a mask, position t sees 0 .. t. */
function attend({ q, k, v, p, o }, B, T, shape) {
  for (let i = 0; i < B * shape.n_head; i++) {
    const [Q, K, V, O] = [q, k, v, o].map((x) => headOf(x, i, T, shape));
    const P = matrix(p, T, T, i * T * T);
    multiply(Q, K, P);
    for (let t = 0, row = P.begin; t < T; t++, row += T) {
      const seen = shape.mask ? t + 1 : T;
      for (let s = 0; s < T; s++) p[row + s] = s < seen ? p[row + s] * shape.attention_scale : 0;
      softmax(p, row, seen);
    }
    multiply(P, transposed(V), O);
  }
}

/** dV = p^T do,  dp = do V^T,  ds = p (dp - sum(p dp)) * scale,  dQ = ds K,  dK = ds^T Q; ds takes the place of dp. */
function attendBackward({ q, k, v, p }, d, B, T, shape) {
  const dP = matrix(d.p, T, T);
  for (let i = 0; i < B * shape.n_head; i++) {
    const [Q, K, V, dQ, dK, dV, dO] = [q, k, v, d.q, d.k, d.v, d.o].map((x) => headOf(x, i, T, shape));
    const P = matrix(p, T, T, i * T * T);
    multiply(transposed(P), transposed(dO), dV);
    multiply(dO, V, dP);
    for (let t = 0; t < T; t++) {
      let mean = 0;
      for (let s = t * T; s < (t + 1) * T; s++) mean += p[P.begin + s] * d.p[s];
      for (let s = t * T; s < (t + 1) * T; s++) d.p[s] = p[P.begin + s] * (d.p[s] - mean) * shape.attention_scale;
    }
    multiply(dP, transposed(K), dQ);
    multiply(transposed(dP), transposed(Q), dK);
  }
}
