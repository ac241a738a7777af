// The gated delta rule and its gradient, for heads of 32 x 32, by plain recurrence over time.
//
//   S_t = exp(g_t) S_{t-1} + k_t d_t^T,   d_t = b_t (v_t - exp(g_t) S_{t-1}^T k_t),   o_t = S_t^T q_t
//
// q, k   [B, T, HK, 32]     v, o   [B, T, HV, 32]     g, b   [B, T, HV]     HV = group * HK
// states [B, HV, T, 32, 32] keeps S_{t-1} of every step for the backward pass (row k, column v).
//
// One warp owns one value head of one sequence; lane v holds column v of the state in 32 registers, so that sums over k stay
// inside the lane. Sums over v (gradients of q and k) go through `fold`, 31 shuffles for 32 sums at once.
//
// The text between the two markers also compiles as C++ (check_gated_delta.py), where a value F is 32 lanes at once.
#define D 32
#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
typedef float F;
DEVICE int lane() { return threadIdx.x; }
DEVICE F load(const float* p) { return p[lane()]; }
DEVICE F load_same(const float* p) { return *p; }
DEVICE void store(float* p, F x) { p[lane()] = x; }
DEVICE void store_one(float* p, F x) { if (lane() == 0) *p = x; }
DEVICE F spread(F x, int from) { return __shfl_sync(0xffffffffu, x, from); }
DEVICE F swap(F x, int distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }
DEVICE F upper(int bit, F a, F b) { return (lane() & bit) ? a : b; }
DEVICE F exponential(F x) { return expf(x); }
#define UNROLL _Pragma("unroll")
#endif

// ---- begin shared text
// Lanes exchange half of their terms: x[0..half] then belongs to the sums whose number has the bit `half` of this lane.
template <int half>
DEVICE void fold_half(F* x) {
    UNROLL
    for (int i = 0; i < half; i++) {
        F keep = upper(half, x[i + half], x[i]);
        F send = upper(half, x[i], x[i + half]);
        x[i] = keep + swap(send, half);
    }
}

// x[i] of lane v is term v of sum i; the result in lane i is sum i.
DEVICE F fold(F* x) {
    fold_half<16>(x);
    fold_half<8>(x);
    fold_half<4>(x);
    fold_half<2>(x);
    fold_half<1>(x);
    return x[0];
}

DEVICE F sum_lanes(F x) {
    UNROLL
    for (int level = 4; level >= 0; level--) x = x + swap(x, 1 << level);
    return x;
}

// row[k] of all k in every lane, from the lane that holds it
DEVICE void spread_all(F row, F* out) {
    UNROLL
    for (int i = 0; i < D; i++) out[i] = spread(row, i);
}

DEVICE F dot(const F* a, const F* b) {
    F s0 = a[0] * b[0], s1 = a[1] * b[1], s2 = a[2] * b[2], s3 = a[3] * b[3];
    UNROLL
    for (int i = 4; i < D; i += 4) {
        s0 = s0 + a[i] * b[i];
        s1 = s1 + a[i + 1] * b[i + 1];
        s2 = s2 + a[i + 2] * b[i + 2];
        s3 = s3 + a[i + 3] * b[i + 3];
    }
    return (s0 + s1) + (s2 + s3);
}

DEVICE void forward(const float* q, const float* k, const float* v, const float* g, const float* b, float* o, float* states,
                    int T, int HK, int HV, int program) {
    const long sequence = program / HV;
    const int head = program % HV, key_head = head / (HV / HK);
    const long key_step = (long)HK * D, value_step = (long)HV * D;
    q += (sequence * T * HK + key_head) * D;
    k += (sequence * T * HK + key_head) * D;
    v += (sequence * T * HV + head) * D;
    o += (sequence * T * HV + head) * D;
    g += sequence * T * HV + head;
    b += sequence * T * HV + head;
    states += (long)program * T * D * D;

    F S[D], row_k[D], row_q[D];
    UNROLL
    for (int i = 0; i < D; i++) S[i] = load_same(g) * 0.0f;
    F q_next = load(q), k_next = load(k), v_next = load(v), g_next = load_same(g), b_next = load_same(b);
    for (int t = 0; t < T; t++) {
        F q_t = q_next, k_t = k_next, v_t = v_next, g_t = g_next, b_t = b_next;
        if (t + 1 < T) {                             // the next step's loads run beside this step's arithmetic
            q_next = load(q + (t + 1) * key_step);
            k_next = load(k + (t + 1) * key_step);
            v_next = load(v + (t + 1) * value_step);
            g_next = load_same(g + (long)(t + 1) * HV);
            b_next = load_same(b + (long)(t + 1) * HV);
        }
        spread_all(k_t, row_k);
        spread_all(q_t, row_q);
        F decay = exponential(g_t);
        UNROLL
        for (int i = 0; i < D; i++) {
            store(states + ((long)t * D + i) * D, S[i]);
            S[i] = S[i] * decay;
        }
        F d = (v_t - dot(S, row_k)) * b_t;
        UNROLL
        for (int i = 0; i < D; i++) S[i] = S[i] + row_k[i] * d;
        store(o + t * value_step, dot(S, row_q));
    }
}

// Gradients of q and k come out per value head, [B, T, HV, 32]; the caller sums them over the group.
DEVICE void backward(const float* q, const float* k, const float* v, const float* g, const float* b, const float* states,
                     const float* grad_o, float* grad_q, float* grad_k, float* grad_v, float* grad_g, float* grad_b,
                     int T, int HK, int HV, int program) {
    const long sequence = program / HV;
    const int head = program % HV, key_head = head / (HV / HK);
    const long key_step = (long)HK * D, value_step = (long)HV * D;
    const long key_base = (sequence * T * HK + key_head) * D, value_base = (sequence * T * HV + head) * D;
    const long scalar_base = sequence * T * HV + head;
    states += (long)program * T * D * D;

    F dS[D], S[D], S_next[D], row_k[D], terms[D];              // dS: gradient of the state after step t
    UNROLL
    for (int i = 0; i < D; i++) {
        dS[i] = load_same(g + scalar_base) * 0.0f;
        S_next[i] = load(states + ((long)(T - 1) * D + i) * D);
    }
    for (int t = T - 1; t >= 0; t--) {
        F q_t = load(q + key_base + t * key_step), k_t = load(k + key_base + t * key_step);
        F v_t = load(v + value_base + t * value_step), do_t = load(grad_o + value_base + t * value_step);
        F decay = exponential(load_same(g + scalar_base + (long)t * HV)), b_t = load_same(b + scalar_base + (long)t * HV);
        UNROLL
        for (int i = 0; i < D; i++) S[i] = S_next[i] * decay;
        if (t > 0) {
            UNROLL
            for (int i = 0; i < D; i++) S_next[i] = load(states + ((long)(t - 1) * D + i) * D);
        }
        spread_all(k_t, row_k);
        F miss = v_t - dot(S, row_k);
        F d = miss * b_t;
        UNROLL
        for (int i = 0; i < D; i++) terms[i] = (S[i] + row_k[i] * d) * do_t;
        store(grad_q + value_base + t * value_step, fold(terms));
        UNROLL
        for (int i = 0; i < D; i++) dS[i] = dS[i] + spread(q_t, i) * do_t;
        F dd = dot(dS, row_k);
        F dv = dd * b_t;
        store(grad_v + value_base + t * value_step, dv);
        store_one(grad_b + scalar_base + (long)t * HV, sum_lanes(dd * miss));
        UNROLL
        for (int i = 0; i < D; i++) terms[i] = dS[i] * d - S[i] * dv;
        store(grad_k + value_base + t * value_step, fold(terms));
        F dg = dv * 0.0f;
        UNROLL
        for (int i = 0; i < D; i++) {
            dS[i] = dS[i] - row_k[i] * dv;
            dg = dg + dS[i] * S[i];
            dS[i] = dS[i] * decay;
        }
        store_one(grad_g + scalar_base + (long)t * HV, sum_lanes(dg));
    }
}
// ---- end shared text

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(32) gated_delta_forward(
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, const float* __restrict__ g,
    const float* __restrict__ b, float* __restrict__ o, float* __restrict__ states, int T, int HK, int HV) {
    forward(q, k, v, g, b, o, states, T, HK, HV, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(32) gated_delta_backward(
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, const float* __restrict__ g,
    const float* __restrict__ b, const float* __restrict__ states, const float* __restrict__ grad_o, float* __restrict__ grad_q,
    float* __restrict__ grad_k, float* __restrict__ grad_v, float* __restrict__ grad_g, float* __restrict__ grad_b,
    int T, int HK, int HV) {
    backward(q, k, v, g, b, states, grad_o, grad_q, grad_k, grad_v, grad_g, grad_b, T, HK, HV, blockIdx.x);
}
#endif
