// Grouped and dense products of f16 activations with quantised weights.
//
//   p[r, n] = 2^s[row(r)] * sum over k of x[row(r), k] * w[expert(r), n, k],   then an epilogue
//
// Why this shape: an expert sees few tokens (T*K/E, often below 64) and its weights are read once, so decoding them is
// the cost. Weights are therefore the 64-row side of the tensor core product and go from packed bytes straight to
// operand registers, each decoded once for all tokens of the tile (decode.cuh); tokens are the side whose size is free
// (8 to 192). No row is gathered beforehand: a tile fetches its tokens' rows through the plan.
//
// As many thread blocks as the card holds share the work evenly: each takes a run of pairs (tile, block of weight rows), in
// that order, of which it computes itself how many there are. No block comes too late for a last round of its own.
//
// Each warp fetches and decodes its own 16 weight rows, stage by stage, and knows nothing of the others. Tokens are shared:
// GEMM_RESIDENT tiles fetch all their columns once, and the warps never wait for each other again; others fetch them with
// each stage, behind a barrier. So do means of gated streams with the streams.
//
// GEMM_SPLIT: the columns are shared out as well (blockIdx.y), and each share's sums are stored for act.cu to add up.
//
// Compiled for one WEIGHT_FORMAT, token tile GEMM_TOKENS, GEMM_GROUPS warpgroups, row map and epilogue:
//   MAP_DENSE     token r of the tile is input row r
//   MAP_GATHER    input row stok[r0 + r]           (gate and up)
//   MAP_SEGMENTS  input row r0 + r                 (down)
//   EPILOGUE_STORE       out[row, n] = p + bias[n]
//   EPILOGUE_ACCUMULATE  out[row, n] += p + bias[n]
//   EPILOGUE_SILU        out[row, n] = silu((p + bias[n]) * scale)
//   EPILOGUE_SWIGLU      out[row, f] = silu(gate) * up; with GEMM_HALF_OUT also as f16, in that order of columns, for the
//                        product that follows; a number beyond the f16 range is counted in `beyond`
//   EPILOGUE_GATE_MEAN   out[row, d] = mean of sigmoid(p[s * D + d] + bias) * normed[row, s, d] over GEMM_STREAMS streams s
#include "few.cuh"
#include "mma.cuh"
#include "view.cuh"

static_assert(GEMM_CHUNK % W::BLOCK == 0 && GEMM_CHUNK % 64 == 0, "a stage holds whole blocks and planes");
constexpr int N = GEMM_TOKENS;

constexpr int WARPS = 4 * GEMM_GROUPS, THREADS = 32 * WARPS;
constexpr int ROWS = 16 * WARPS;                     // weight rows of a block
constexpr bool SWIGLU = GEMM_EPILOGUE == EPILOGUE_SWIGLU, MEAN = GEMM_EPILOGUE == EPILOGUE_GATE_MEAN;
// Weight rows that make one output: a gate row and an up row, or a row of each stream. A warp's 16 are NEAR neighbours of each.
#if GEMM_EPILOGUE == EPILOGUE_GATE_MEAN
constexpr int STREAMS = GEMM_STREAMS, FACTORS = STREAMS;
#else
constexpr int STREAMS = 1, FACTORS = SWIGLU ? 2 : 1;
#endif
constexpr int NEAR = 16 / FACTORS, OUTPUTS = ROWS / FACTORS;
static_assert(16 % FACTORS == 0 && (FACTORS > 1 || !MEAN), "a warp has all rows of an output");
constexpr int CHUNK = GEMM_CHUNK;                    // columns of a pipeline stage
constexpr int RUNS = CHUNK / 32;
constexpr int TOGETHER = W::ORDER == ORDER_SIXTEENS ? 2 : 1; // runs a product
constexpr int SEGMENT = CHUNK / W::BLOCK * W::BYTES; // packed bytes of a row in a stage
// A segment begins anywhere in a 16-byte piece. An odd number of pieces from row to row spreads rows over the banks.
constexpr int PIECES = ((SEGMENT + 30) / 16) | 1, PITCH = 16 * PIECES;
// A stage is fetched in so many parts, one after each of the first products of the stage before it: if all warps fetch at once,
// they wait for each other. With two stages the last part must not come late, and with weights of 16 bits there is most to
// fetch. Of many tokens and superblocks, what is best has been measured for each size of these (docs/cuda.md). Where few tokens or
// none are fetched, warps are apart anyway.
constexpr int PRODUCTS = RUNS / TOGETHER;
constexpr int IN_TWO_STAGES = W::BLOCK < 256 ? 2 : W::BYTES > 160 ? 1 : W::BYTES > 100 && W::BYTES < 120 ? 4 : 2;
constexpr int IN_PARTS = GEMM_STAGES > 2 && W::BYTES < 2 * W::BLOCK ? PRODUCTS : N > 64 ? IN_TWO_STAGES : PRODUCTS / 2;
constexpr int PARTS = GEMM_TAIL || MEAN || N <= 16 || (GEMM_RESIDENT && TOGETHER == 2) ? 1 : IN_PARTS;
constexpr int TOKEN_STAGE = GEMM_RESIDENT ? 0 : N * CHUNK * 2;
constexpr int STREAM_STAGE = MEAN ? N * ROWS * 4 : 0; // of the tokens' streams, in the last stage of a block of rows
constexpr int STAGE_BYTES = (TOKEN_STAGE + STREAM_STAGE + ROWS * PITCH + 1023) / 1024 * 1024;
static_assert(STAGE_BYTES == GEMM_STAGE_BYTES, "what the host asks for");

#if CAPABILITY == 90 && GEMM_TOKENS > 16
typedef AsyncProduct Product;
#else
typedef SyncProduct Product;
#endif

struct GemmArgs {
    const u16 *x;         // [*, x_stride] f16, columns in the format's order
    const i32 *exponents; // [*] s of each row of x
    const u8 *w0, *w1;    // packed rows; w1: the up matrix of SwiGLU
    float *out;           // [*, out_stride]
    u16 *half;            // [*, half_stride]
    u32 *beyond;          // written with `half`: how many of its numbers are infinite
    const u32 *scaled;    // 0 there: no row of x is scaled and `exponents` say nothing; null: they do
    const u32 *exceeded[2]; // not 0 where one of them is: the weights are beyond the range of f16, and product.cu multiplies; or null
    const float *bias;    // [n] or null
    const i32 *stok;      // [R]
    const u32 *tiles;     // [meta[META_TILES], 3]: expert, first row, valid rows
    const u32 *meta;
    Floats normed;        // [tokens, streams, D] in quads, of EPILOGUE_GATE_MEAN
    u64 expert_bytes, row_bytes;
    u32 x_stride;         // in pieces of 8 columns
    u32 out_stride, half_stride;
    u32 k, n;             // columns (of one share), weight rows (of one matrix)
    u32 tokens;           // dense: rows of x
    u32 parts;            // pieces of N rows that a plan's tile is cut into
    u32 row_blocks;       // blocks of ROWS weight rows
    float scale;
};
AS_HOST(GemmArgs, GEMM_ARGS);

// 1 / (1 + e^-x) within a few units in the last place; 0 where it is below 2^-126.
DEVICE float fast_sigmoid(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + r));
    return r;
}
DEVICE float fast_silu(float x) { return x * fast_sigmoid(x); }

// What is stored for a product, where `before` is.
DEVICE float finished(float p, const float &before, float scale) {
    return GEMM_EPILOGUE == EPILOGUE_ACCUMULATE ? before + p : GEMM_EPILOGUE == EPILOGUE_SILU ? fast_silu(p * scale) : p;
}

// What the tokens of a tile are multiplied by and where from.
struct Tokens { i32 rows[N]; float powers[N]; }; // row of x, 2^s
static_assert(sizeof(Tokens) == 8 * N && sizeof(Decoder::Tables) == (GEMM_TABLES ? GEMM_TABLES : 1), "what the host leaves room for");

// Adds the sums of weights that are still to be multiplied by a factor, one for each of the two fragment rows (few.cuh); the sums
// begin with them where `fresh`.
template <int WIDTH> DEVICE void add_times(float *sums, const float *of_block, float factor0, float factor1, bool fresh) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) sums[i] = (fresh ? 0.0f : sums[i]) + of_block[i] * (i / 2 % 2 ? factor1 : factor0);
}

// The rows of a product that share one expert's weights, at most N of them.
struct Rows { u32 expert, first, count; };

// Part `part` of tile `tile`.
DEVICE Rows rows_of(const GemmArgs &a, u32 tile, u32 part) {
    if (GEMM_MAP == MAP_DENSE) return {0, tile * N, min((u32)N, a.tokens - tile * N)};
    const u32 *of = a.tiles + 3 * tile, rows = of[2], before = min(rows, part * N);
    return {of[0], of[1] + part * N, min((u32)N, rows - before)};
}

// Where the 16-byte piece of columns `piece` of a token's stream lies among those of a stage, in words: exchanged so that a
// warp's reads in store_mean, of four streams at least, meet no bank twice.
DEVICE u32 stream_piece(u32 stream, u32 token, u32 piece) {
    constexpr u32 PIECES = OUTPUTS / 4;
    const u32 exchange = (token / 2 % 4 | stream % 2 * 4) % PIECES;
    return 4 * ((stream * N + token) * PIECES + (piece ^ exchange));
}

// Fetches columns `first` to `first` + OUTPUTS of the tokens' streams, which all warps share.
DEVICE void fill_streams(const GemmArgs &a, u32 to, u32 r0, u32 valid, u32 first) {
    constexpr u32 PIECES = OUTPUTS / 4;
    const u32 piece = threadIdx.x % PIECES;
    if (first + 4 * piece >= a.normed.cols) return;
#pragma unroll
    for (u32 stream = 0; stream < STREAMS; stream++)
#pragma unroll
        for (u32 i = 0; i < N; i += THREADS / PIECES)
            if (const u32 token = threadIdx.x / PIECES + i; token < valid)
                copy16_async(to + 4 * stream_piece(stream, token, piece), a.normed.at(r0 + token, stream) + first + 4 * piece);
}

// The means of a tile's streams in column `column`, of a block's `own`, from what a stage holds of the streams. Fragment row
// quad + 8h is that of stream quad / NEAR + STREAMS / 2 * h: a lane adds up two streams, and the lanes whose quads are a
// multiple of NEAR apart add up the rest, always in the same order.
template <int WIDTH> DEVICE void store_mean(const GemmArgs &a, const float *acc, const float *streams, u32 r0, u32 valid, u32 column, u32 own) {
    const u32 quad = threadIdx.x % 32 / 4, c = threadIdx.x % 4, stream0 = quad / NEAR, stream1 = stream0 + STREAMS / 2;
    const u32 count = column < a.normed.cols ? valid : 0;
    const float *x0 = streams + stream_piece(stream0, 2 * c, own / 4) + own % 4, *x1 = streams + stream_piece(stream1, 2 * c, own / 4) + own % 4;
    float *to = a.out + (u64)(r0 + 2 * c) * a.out_stride + column;
#ifdef GEMM_BIAS
    const float bias0 = count ? a.bias[stream0 * a.normed.cols + column] : 0.0f, bias1 = count ? a.bias[stream1 * a.normed.cols + column] : 0.0f;
#else
    constexpr float bias0 = 0, bias1 = 0;
#endif
#pragma unroll
    for (u32 i = 0; i < WIDTH / 8; i++) { // all of them, so that what is waited for is waited for together
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            const u32 token = 8 * i + j; // and 2c; of a token's neighbour, and of one 8 further, pieces are exchanged in the same way
            const float gate0 = fast_sigmoid(acc[4 * i + j] + bias0), gate1 = fast_sigmoid(acc[4 * i + 2 + j] + bias1);
            float sum = fmaf(gate1, x1[token * OUTPUTS], gate0 * x0[token * OUTPUTS]);
#pragma unroll
            for (u32 apart = 4 * NEAR; apart < 32; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
            // All of these lanes have it. Where there are two at least, they share out the tokens.
            const bool mine = STREAMS == 2 || stream0 == j;
            if (mine && token + 2 * c < count) to[(u64)a.out_stride * token] = sum * (1.0f / STREAMS);
        }
    }
}

// Blocks of weight rows from `row_block` to before `last_block` times rows of x, at most WIDTH.
template <int WIDTH> DEVICE void multiply_tile(const GemmArgs &a, u8 *shared, Tokens &of, const Decoder::Tables &tables, const Rows &rows, u32 row_block, const u32 last_block) {
    const u32 expert = rows.expert, r0 = rows.first, valid = rows.count;
    const u32 t = threadIdx.x, warp = t / 32, lane = t % 32, quad = lane / 4, c = lane % 4;
    i32 exponent = 0;
    if (t < N) {
        i32 row = t >= valid ? -1 : GEMM_MAP == MAP_GATHER ? a.stok[r0 + t] : (i32)(r0 + t);
        if (row >= 0 && !(a.scaled && *a.scaled == 0)) exponent = a.exponents[row];
        of.rows[t] = row, of.powers[t] = power_of_two(exponent);
    }
    const bool scaled = __syncthreads_or(exponent != 0);
    const auto &looked = Decoder::look(tables, lane);

    const u32 outputs = MEAN ? a.normed.cols : a.n;
    const u64 expert0 = (u64)a.w0 + expert * a.expert_bytes, expert1 = (u64)a.w1 + expert * a.expert_bytes;
    auto row_address = [&](u32 row_block, u32 i) { // of row i of this warp's
        const u32 output = min(row_block * OUTPUTS + NEAR * warp + i % NEAR, outputs - 1), factor = i / NEAR;
        return (SWIGLU && factor == 1 ? expert1 : expert0) + ((MEAN ? factor * outputs : 0) + output) * a.row_bytes;
    };

    const u32 chunks = (a.k + CHUNK - 1) / CHUNK, shared0 = shared_address(shared);
    const u32 token_bytes = GEMM_RESIDENT ? (a.k + 63) / 64 * (N * 128) : 0, stages0 = shared0 + token_bytes;

    // Tokens: a thread keeps its 16-byte piece of 32 (or of fewer, if a stage is short), and walks over rows; the rows of
    // its walk are equal modulo 8, so that all of them are exchanged alike (activation_address). Rows without a token keep
    // what was there: sums of other tokens know nothing of it.
    constexpr u32 PIECES_X = CHUNK / 8, ACROSS = GEMM_RESIDENT || PIECES_X > 32 ? 32 : PIECES_X, REPEAT = (PIECES_X + ACROSS - 1) / ACROSS;
    constexpr u32 WALK = THREADS / ACROSS, WALKS = (N + WALK - 1) / WALK;
    static_assert(THREADS % ACROSS == 0 && WALK % 8 == 0, "a stage's columns are a power of two of 16-byte pieces");
    const u32 first_token = t / ACROSS, piece_x = t % ACROSS;
    const u32 to_x = activation_address<N>(0, first_token, piece_x);
    const u32 walks = first_token < valid ? (valid - first_token + WALK - 1) / WALK : 0;
    u32 source[WALKS]; // where this thread's piece of each row of its walk begins, in pieces
#pragma unroll
    for (u32 i = 0; i < WALKS; i++) source[i] = i < walks ? (u32)of.rows[first_token + i * WALK] * a.x_stride + piece_x : 0;
    if (GEMM_RESIDENT) {
#pragma unroll
        for (u32 i = 0; i < WALKS; i++)
            for (u32 p = 0; i < walks && 8 * (piece_x + p) < a.k; p += 32)
                copy16_async(shared0 + to_x + i * WALK * 128 + p / 8 * (N * 128), a.x + ((u64)source[i] + p) * 8);
        copy_commit();
    }

    // Weights: eight lanes a row, four rows at a time.
    constexpr u32 ALIGN = WEIGHT_ALIGN < (SEGMENT & -SEGMENT) ? WEIGHT_ALIGN : (SEGMENT & -SEGMENT);
    constexpr u32 COPIES = (SEGMENT + (ALIGN < 16 ? 16 - ALIGN : 0) + 15) / 16, ROUNDS = (COPIES + 7) / 8;
    const u32 piece_w = lane % 8, weights = TOKEN_STAGE + STREAM_STAGE + warp * 16 * PITCH, to_w = weights + lane / 8 * PITCH + piece_w * 16;
    u32 fill_block = row_block, fill_chunk = 0, fill_stage = stages0;
    const u16 *fill_x = a.x;
    u64 fill_w[4]; // rows lane / 8 + 4i
    auto seek = [&]() {
#pragma unroll
        for (u32 i = 0; i < 4; i++) fill_w[i] = row_address(fill_block, lane / 8 + 4 * i) + piece_w * 16;
    };
    seek();
    auto fill = [&](u32 part) {
        const u32 columns = GEMM_TAIL ? min((u32)CHUNK, a.k - fill_chunk * CHUNK) : CHUNK;
        if (!GEMM_RESIDENT) {
#pragma unroll
            for (u32 i = 0; i < WALKS; i++)
#pragma unroll
                for (u32 j = 0; j < REPEAT; j++)
                    if ((i * REPEAT + j) * PARTS / (WALKS * REPEAT) == part && i < walks && (!GEMM_TAIL || 8 * (piece_x + j * ACROSS) < columns))
                        copy16_async(fill_stage + to_x + i * WALK * 128 + j * (ACROSS / 8) * (N * 128), fill_x + (u64)source[i] * 8 + j * ACROSS * 8);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u8 *from = (const u8 *)(fill_w[i] & ~15ull);
            const u32 end = GEMM_TAIL ? (((u32)fill_w[i] & 15) + columns / W::BLOCK * W::BYTES + 15) / 16 : COPIES;
#pragma unroll
            for (u32 p = 0; p < ROUNDS; p++)
                if ((i * ROUNDS + p) * PARTS / (4 * ROUNDS) == part && piece_w + 8 * p < end)
                    copy16_async(fill_stage + to_w + i * 4 * PITCH + p * 128, from + p * 128);
        }
        if (part + 1 < PARTS) return;
        if (MEAN && fill_chunk + 1 == chunks) fill_streams(a, fill_stage + TOKEN_STAGE, r0, valid, fill_block * OUTPUTS);
        fill_x += CHUNK;
#pragma unroll
        for (u32 i = 0; i < 4; i++) fill_w[i] += SEGMENT;
        fill_stage = fill_stage == stages0 + (GEMM_STAGES - 1) * STAGE_BYTES ? stages0 : fill_stage + STAGE_BYTES;
        if (++fill_chunk == chunks) {
            fill_chunk = 0, fill_x = a.x, fill_block++;
            seek();
        }
    };

#pragma unroll
    for (u32 s = 0; s < GEMM_STAGES - 1; s++) {
        if (fill_block < last_block && chunks > 0)
#pragma unroll
            for (u32 part = 0; part < PARTS; part++) fill(part);
        copy_commit();
    }
    if (GEMM_RESIDENT) {
        copy_wait<GEMM_STAGES - 1>();
        Product::fence();
        __syncthreads(); // all tokens are there
    }
    float acc[WIDTH / 2], of_block[Decoder::RUNS ? WIDTH / 2 : 1];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) acc[i] = 0;
    u32 chunk = 0, stage = token_bytes, begin0 = 0, begin1 = 0;
    while (row_block < last_block && chunks > 0) {
        if (chunk == 0) begin0 = (u32)row_address(row_block, quad), begin1 = (u32)row_address(row_block, quad + 8);
        // This stage is full, and whoever reads it has left the one that is filled next.
        copy_wait<GEMM_STAGES - 2>();
        if (GEMM_RESIDENT && !MEAN) {
            __syncwarp();
        } else {
            Product::fence();
            __syncthreads();
        }
        const bool filling = fill_block < last_block;
        if (PARTS == 1) {
            if (filling) fill(0);
            copy_commit();
        }

        const u8 *block0 = shared + stage + weights + quad * PITCH + (begin0 & 15);
        const u8 *block1 = shared + stage + weights + (quad + 8) * PITCH + (begin1 & 15);
        const u32 tokens = shared0 + (GEMM_RESIDENT ? chunk * (CHUNK / 64 * N * 128) : stage);
        const u32 runs = GEMM_TAIL ? min((u32)CHUNK, a.k - chunk * CHUNK) / 32 : RUNS;
        u32 operand[2][8 * TOGETHER];
        Decoder::State s0, s1;
        constexpr int EACH = Decoder::RUNS ? Decoder::RUNS : RUNS; // runs that share a factor, if they do
#pragma unroll
        for (int run = 0; run < RUNS; run++) {
            if (GEMM_TAIL && run >= runs) break;
            constexpr int IN_BLOCK = W::BLOCK / 32;
            const u8 *b0 = block0 + run / IN_BLOCK * W::BYTES, *b1 = block1 + run / IN_BLOCK * W::BYTES;
            if (run % IN_BLOCK == 0) s0 = Decoder::load(b0, c), s1 = Decoder::load(b1, c);
            u32 g[4], h[4];
            Decoder::decode(s0, b0, run % IN_BLOCK, c, looked, g);
            Decoder::decode(s1, b1, run % IN_BLOCK, c, looked, h);
            if (run % TOGETHER == 0) Product::wait<1>(); // the products before the last have read their operands
            u32 *o = operand[run / TOGETHER & 1], *mine = o + run % TOGETHER * 8;
#pragma unroll
            for (int i = 0; i < 4; i++) mine[2 * i] = g[i], mine[2 * i + 1] = h[i];
            const int first = run + 1 - TOGETHER;
            if (first % TOGETHER != 0) continue;
            if (Decoder::RUNS) {
                Product::multiply<N, WIDTH, TOGETHER>(of_block, o, tokens, first, lane, first % EACH == 0);
                if ((run + 1) % EACH == 0) add_times<WIDTH>(acc, of_block, Decoder::factor(s0), Decoder::factor(s1), run < EACH && chunk == 0);
            } else {
                Product::multiply<N, WIDTH, TOGETHER>(acc, o, tokens, first, lane, first == 0 && chunk == 0);
            }
            const u32 part = first / TOGETHER;
            if (PARTS == 1 || part >= PARTS) continue;
            if (filling) fill(part);
            if (part + 1 == PARTS) copy_commit();
        }
        Product::wait<0>();
        const float *streams = (const float *)(shared + stage + TOKEN_STAGE);
        stage = stage == token_bytes + (GEMM_STAGES - 1) * STAGE_BYTES ? token_bytes : stage + STAGE_BYTES;
        begin0 += SEGMENT, begin1 += SEGMENT;
        if (++chunk < chunks) continue;

        // acc[4i + 2h + j]: fragment row quad + 8h, token 8i + 2c + j
        if (scaled) {
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) acc[i] *= of.powers[i / 4 * 8 + 2 * c + i % 2];
        }
        const u32 n0 = row_block * OUTPUTS + NEAR * warp + quad % NEAR;
        if (MEAN) {
            store_mean<WIDTH>(a, acc, streams, r0, valid, n0, NEAR * warp + quad % NEAR);
            chunk = 0, row_block++;
            continue;
        }
        const u32 valid0 = n0 < a.n ? valid : 0, valid1 = !SWIGLU && n0 + 8 < a.n ? valid : 0;
        float *to = a.out + (u64)(r0 + 2 * c) * a.out_stride + n0;
#ifdef GEMM_BIAS
        const float bias0 = valid0 ? a.bias[n0] : 0.0f, bias1 = valid1 ? a.bias[n0 + 8] : 0.0f;
#else
        constexpr float bias0 = 0, bias1 = 0;
#endif
#ifdef GEMM_HALF_OUT
        u16 *half = a.half + (u64)(r0 + 2 * c) * a.half_stride + stored_column<GEMM_HALF_OUT>(n0);
        float most = 0;
#endif
#pragma unroll
        for (u32 i = 0; i < WIDTH / 8; i++) {
            if (8 * i >= valid) break;
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const float p0 = acc[4 * i + j], p1 = acc[4 * i + 2 + j];
                const u32 token = 8 * i + 2 * c + j;
                float *here = to + (u64)a.out_stride * (8 * i + j);
                if (SWIGLU) {
                    if (token < valid0) {
                        const float h = fast_silu(p0) * p1;
                        here[0] = h;
#ifdef GEMM_HALF_OUT
                        half[(u64)a.half_stride * (8 * i + j)] = float_to_half(h);
                        most = fmaxf(most, fabsf(h));
#endif
                    }
                } else {
                    if (token < valid0) here[0] = finished(p0 + bias0, here[0], a.scale);
                    if (token < valid1) here[8] = finished(p1 + bias1, here[8], a.scale);
                }
            }
        }
#ifdef GEMM_HALF_OUT
        if (most >= 65520.0f) atomicAdd(a.beyond, 1);
#endif
        chunk = 0, row_block++;
    }
}

// In the narrowest product that holds the rows: an expert has now more of them, now fewer.
template <int WIDTH> DEVICE void multiply_rows(const GemmArgs &a, u8 *shared, Tokens &of, const Decoder::Tables &tables, const Rows &rows, u32 first, u32 last) {
    constexpr int NARROWER = WIDTH - (N / 8 + 7) / 8 * 8;
    if constexpr (GEMM_MAP != MAP_DENSE && NARROWER >= N * 5 / 8 && NARROWER > 16)
        if (rows.count <= NARROWER) return multiply_rows<NARROWER>(a, shared, of, tables, rows, first, last);
    multiply_tile<WIDTH>(a, shared, of, tables, rows, first, last);
}

extern "C" __global__ void __launch_bounds__(THREADS, GEMM_BLOCKS) gemm(const __grid_constant__ GemmArgs whole) {
#ifdef GEMM_SPLIT
    GemmArgs a = whole;
    a.x += blockIdx.y * a.k, a.out += (u64)blockIdx.y * a.tokens * a.n;
    a.w0 += blockIdx.y * (a.k / W::BLOCK * W::BYTES);
#else
    const GemmArgs &a = whole;
#endif
    extern __shared__ __align__(1024) u8 shared[]; // copies of tables, tokens that stay, stages
#if COPIED_BYTES
    Decoder::Tables &tables = *(Decoder::Tables *)shared;
#else
    __shared__ Decoder::Tables tables;
#endif
    __shared__ Tokens of;
    Decoder::load_tables(tables, threadIdx.x, THREADS);
    after_previous();
    if ((a.exceeded[0] && *a.exceeded[0]) || (a.exceeded[1] && *a.exceeded[1])) return;
    const u32 tiles = GEMM_MAP == MAP_DENSE ? (a.tokens + N - 1) / N : a.meta[META_TILES] * a.parts;
    const u64 all = (u64)tiles * a.row_blocks;
    const u64 end = all * (blockIdx.x + 1) / gridDim.x;
    for (u64 at = all * blockIdx.x / gridDim.x; at < end;) {
        const u32 tile = (u32)(at / a.row_blocks), first = (u32)(at % a.row_blocks), last = (u32)min((u64)a.row_blocks, first + end - at);
        const Rows rows = rows_of(a, tile / a.parts, tile % a.parts);
        if (rows.count > 0) multiply_rows<N>(a, shared + COPIED_BYTES, of, tables, rows, first, last);
        at += last - first;
        __syncthreads(); // nobody reads the tokens any more
    }
}
