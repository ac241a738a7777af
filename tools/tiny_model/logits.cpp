// logits MODEL.gguf TOKENS.txt OUT.f32: llama.cpp's logits after every token of TOKENS.txt (decimal ids), in one batch, on the CPU,
// with an F32 cache and flash attention off. Build against a llama.cpp checkout:
//   c++ -O2 -I$LLAMA/include -I$LLAMA/ggml/include logits.cpp -L$BUILD/bin -lllama -lggml -lggml-base -o logits
#include <cstdio>
#include <fstream>
#include <vector>

#include "llama.h"

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    std::vector<llama_token> tokens;
    std::ifstream list(argv[2]);
    for (llama_token t; list >> t;) tokens.push_back(t);

    llama_backend_init();
    llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return 1;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context* context = llama_init_from_model(model, params);
    if (!context) return 1;

    llama_batch batch = llama_batch_init((int)tokens.size(), 0, 1);
    batch.n_tokens = (int)tokens.size();
    for (int i = 0; i < batch.n_tokens; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    if (llama_decode(context, batch)) return 1;
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::ofstream out(argv[3], std::ios::binary);
    for (int i = 0; i < batch.n_tokens; i++)
        out.write((const char*)llama_get_logits_ith(context, i), sizeof(float) * vocabulary);
    return out ? 0 : 1;
}
