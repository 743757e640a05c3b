#!/bin/bash
# Runs small cases of the GPU's kernels under compute-sanitizer:
#   tools/sanitize_gpu.sh BUILD [LOGS [PROGRAM...]]
# BUILD is the build's folder, in which the test programs are; without PROGRAM, all that are listed
# below. On a machine with a GPU and compute-sanitizer; as many at a time as there are cores, about
# two minutes with 16. Logs of what failed are printed.
set -u
build=$(cd "$1" && pwd)
logs=${2:-$(mktemp -d)}
chosen=" ${*:3} "
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ ! -x "$sanitizer" ]; then
  echo "sanitize_gpu: expected compute-sanitizer on the PATH; it comes with the CUDA toolkit" >&2
  exit 2
fi

# Cases that are small: a kernel under a tool is ten to a hundred times slower. Lines of one program
# are one run each, so that none takes much longer than half a minute.
#
# memcheck   every program: addresses in device and shared memory, launches that fail.
# initcheck  what reads what an earlier launch wrote: attention's tables, pieces and counts.
# synccheck  kernels with barriers of warps, blocks or clusters.
# racecheck  kernels whose threads meet at barriers of a block, or whose warps have a ring each. It
#            does not follow a lane that arrives at an mbarrier for its warp behind a barrier of that
#            warp: where lanes of one warp read (or write) what the copy engine or another warp
#            writes (or reads) next, and one lane says so, it reports races that are none. (With an
#            arrival of each lane the same ring has no findings.) So it is of no use where a ring goes
#            round: attention's prefill, nested_gemm, w4ax_gemm, mixed_gemm and what is made of them.
cases="
memcheck cuda_ops_gpu_test FirstRowsGpuTest.*:RopeKvGpuTest.QuantizedRows*:ActivationGpuTest.Gated*:NormGpuTest.ARow*
memcheck cuda_fused_gpu_test FusedGpuTest.NormsAdd*:FusedGpuTest.NothingIsDone*
memcheck cuda_sampling_gpu_test CudaSamplerTest.ChoosesFromRows*:CudaSamplerTest.Replays*:CudaSamplerTest.LeavesRows*
memcheck cuda_moe_gpu_test MoeGpuTest.*:GroupedGemmGpuTest.ActivationsAre*
memcheck cuda_experts_gpu_test ExpertsGpuTest.Codes*:ExpertsGpuTest.AGraph*
memcheck cuda_attention_gpu_test CudaAttention.AGraph*:CudaAttention.NotANumber*:CudaAttention.ScalesOf*
memcheck cuda_attention_gpu_test CudaAttention.ManyPieces*
memcheck cuda_attention_gpu_test CudaAttention.DecodesOfAll*
memcheck cuda_attention_gpu_test CudaAttention.ChunksBehind*
memcheck cuda_gemm_gpu_test FewRowsGpuTest.*:QuantizeRowsGpuTest.TakesMany*:GemmGpuTest.NanStays*
memcheck cuda_gemm_gpu_test StreamedGemmGpuTest.TakesOdd*
memcheck cuda_mixed_gemm_gpu_test MixedGemm.RunsInGraphs:MixedGemm.IsRightForFewRows
memcheck cuda_nested_gemm_gpu_test NestedGemm.*
memcheck cuda_w4ax_gemm_gpu_test W4axGemm.SumsOf*:W4axGemm.RowsThat*:W4axGemm.RunsInGraphs*
memcheck cuda_weights_gpu_test CudaLinearGpuTest.Keeps*:CudaLinearGpuTest.Numbers*:LinearInputGpuTest.*
memcheck cuda_weights_gpu_test TileLinear.*
memcheck cuda_library_gpu_test *HalleyKernelsGpu*
memcheck cuda_mma_gemm_gpu_test MmaGemm.ARow*:MmaGemm.RunsInGraphs:MmaW4ax.RowsThat*
memcheck cuda_models_gpu_test GpuGraphs.ServeOne*:Families/GpuFamily.*/llama*
initcheck cuda_attention_gpu_test CudaAttention.AGraph*
synccheck cuda_ops_gpu_test NormGpuTest.ARow*
synccheck cuda_sampling_gpu_test CudaSamplerTest.Replays*
synccheck cuda_attention_gpu_test CudaAttention.NotANumber*:CudaAttention.ScalesOf*
synccheck cuda_gemm_gpu_test StreamedGemmGpuTest.TakesOdd*:FewRowsGpuTest.*
synccheck cuda_nested_gemm_gpu_test NestedGemm.RunsInGraphs*
synccheck cuda_w4ax_gemm_gpu_test W4axGemm.RunsInGraphs*
synccheck cuda_mixed_gemm_gpu_test MixedGemm.RunsInGraphs
racecheck cuda_ops_gpu_test NormGpuTest.ARow*:RopeKvGpuTest.QuantizedRows*
racecheck cuda_fused_gpu_test FusedGpuTest.NormsAdd*
racecheck cuda_sampling_gpu_test CudaSamplerTest.Replays*:CudaSamplerTest.LeavesRows*
racecheck cuda_moe_gpu_test MoeGpuTest.TheLower*:MoeGpuTest.AllRows*:GroupedGemmGpuTest.ActivationsAre*
racecheck cuda_attention_gpu_test CudaAttention.AGraph*
racecheck cuda_attention_gpu_test CudaAttention.ManyPieces*
racecheck cuda_gemm_gpu_test StreamedGemmGpuTest.TakesOdd*
racecheck cuda_mma_gemm_gpu_test MmaGemm.ARow*:MmaW4ax.RowsThat*
"
mkdir -p "$logs"
names=()
while read -r tool program filter; do
  [ -n "$tool" ] || continue
  [ "$chosen" = "  " ] || [[ "$chosen" == *" $program "* ]] || continue
  path=$(find "$build" -name "$program" -type f | head -n 1)
  if [ -z "$path" ]; then
    echo "sanitize_gpu: expected $program in $build, got nothing. Build it first." >&2
    exit 2
  fi
  name=$tool-$program-$((${#names[@]} + 1))
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  # 9: what the sanitizer found; any other status is the program's own.
  (
    start=$SECONDS
    timeout 300 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      --print-limit 20 "$path" --gtest_brief=1 --gtest_filter="$filter" \
      > "$logs/$name.log" 2>&1
    status=$?
    echo "$status" > "$logs/$name.status"
    echo "$name: status $status, $((SECONDS - start)) s"
  ) &
  names+=("$name")
done <<< "$cases"

if [ ${#names[@]} -eq 0 ]; then
  echo "sanitize_gpu: expected programs of the list, got$chosen" >&2
  exit 2
fi
wait
num_failed=0
for name in "${names[@]}"; do
  if [ "$(cat "$logs/$name.status")" != 0 ]; then
    num_failed=$((num_failed + 1))
    echo "== $name"
    tail -n 40 "$logs/$name.log"
  elif ! grep -q "PASSED  \] [1-9]" "$logs/$name.log"; then
    num_failed=$((num_failed + 1))
    echo "== $name: no test ran"
  fi
done
echo "sanitize_gpu: $((${#names[@]} - num_failed)) of ${#names[@]} runs without findings; logs in $logs"
[ "$num_failed" -eq 0 ]
