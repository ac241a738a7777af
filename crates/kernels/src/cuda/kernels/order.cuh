// In which order the columns of activations are stored, for a product to meet the weights as they are decoded.
#pragma once
#include "prelude.cuh"

// Of 32 neighbouring columns, 8c .. 8c+7 belong to lane c of a quad; a word is two neighbours.
//   ORDER_EIGHTS
// 4c+i and 16+4c+i (i < 4) belong to lane c; word i is that pair: the two nibbles of a byte in many formats.
//   ORDER_HALVES
// The same 8; the words are (4c, 4c+2), (16+4c, 16+4c+2), (4c+1, 4c+3), (16+4c+1, 16+4c+3): nibbles 16 bits apart.
//   ORDER_NIBBLES
// Of 64 neighbouring columns, 16c .. 16c+15 belong to lane c, 8 to each of two runs of 32; word i of them is (i, i + 4).
//   ORDER_SIXTEENS

// Column -> place where the activations keep it. Word w of lane c is the fragment columns 2c, 2c+1 (plus 8 for odd w) of
// product step w / 2.
template <int ORDER> DEVICE u32 stored_column(u32 column) {
    u32 lane, word, second, run = column & ~31u;
    if (ORDER == ORDER_SIXTEENS) {
        lane = (column >> 4) & 3, word = column & 3, second = (column >> 2) & 1, run = (column & ~63u) | (column << 2 & 32);
    } else if (ORDER == ORDER_EIGHTS) {
        lane = (column >> 3) & 3, word = (column >> 1) & 3, second = column & 1;
    } else if (ORDER == ORDER_HALVES) {
        lane = (column >> 2) & 3, word = column & 3, second = (column >> 4) & 1;
    } else {
        lane = (column >> 2) & 3, word = (column & 1) << 1 | (column >> 4 & 1), second = (column >> 1) & 1;
    }
    return run | (word >> 1) << 4 | (word & 1) << 3 | lane << 1 | second;
}

// Place -> column: the inverse.
DEVICE u32 source_column(u32 order, u32 place) {
    u32 lane = (place >> 1) & 3, word = (place >> 4 & 1) << 1 | (place >> 3 & 1), second = place & 1, within;
    if (order == ORDER_SIXTEENS) return (place & ~63u) | lane << 4 | (place >> 2 & 8) | second << 2 | word;
    if (order == ORDER_EIGHTS) within = lane << 3 | word << 1 | second;
    else if (order == ORDER_HALVES) within = second << 4 | lane << 2 | word;
    else within = (word & 1) << 4 | lane << 2 | second << 1 | word >> 1;
    return (place & ~31u) | within;
}
