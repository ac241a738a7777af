// out[t, g, :] = table[ids[t, g], :], decoded to f32.
#include "exact.cuh"
#include "view.cuh"

struct EmbedArgs {
    Ints ids;      // [T, 1, G]
    Floats out;    // [T, G, C]
    const u8 *table;
    u64 row_bytes;
    Status *status;
    u32 limit;     // rows of the table
    u32 op;        // this op's number, for `status`
};
AS_HOST(EmbedArgs, EMBED_ARGS);

// Reports the first id outside the table. One block.
extern "C" __global__ void embed_check(const __grid_constant__ EmbedArgs a) {
    __shared__ u32 first;
    if (threadIdx.x == 0) first = ~0u;
    __syncthreads();
    const u32 groups = a.ids.cols, entries = a.ids.rows * groups;
    for (u32 i = threadIdx.x; i < entries; i += blockDim.x) {
        i32 id = a.ids.at(i / groups, 0)[i % groups];
        if (id < 0 || (u32)id >= a.limit) atomicMin(&first, i);
    }
    __syncthreads();
    if (threadIdx.x == 0 && first != ~0u && a.status->where == ~0ull) {
        a.status->where = (u64)a.op << 32 | first;
        a.status->id = (u64)(long long)a.ids.at(first / groups, 0)[first % groups];
    }
}

extern "C" __global__ void embed(const __grid_constant__ EmbedArgs a) {
    const u32 row = blockIdx.x / a.out.groups, group = blockIdx.x % a.out.groups;
    const i32 id = a.ids.at(row, 0)[group];
    if (id < 0 || (u32)id >= a.limit) return;
    const u8 *from = a.table + (u64)id * a.row_bytes;
    float *out = a.out.at(row, group);
    for (u32 c = threadIdx.x; c < a.out.cols; c += blockDim.x) out[c] = weight_of_row(from, c);
}
