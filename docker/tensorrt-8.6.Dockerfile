# trtconv with TensorRT 8.6, whose engines are for the GPU that they are built on. From the root of the repository:
#   docker build -f docker/tensorrt-8.6.Dockerfile -t trtconv:8.6 .
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/work" trtconv:8.6 build model.onnx
# The image of NVIDIA has TensorRT 8.6.1 and CPython 3.10; Triton of the same release loads the engines.

FROM nvcr.io/nvidia/tensorrt:23.10-py3 AS wheel
COPY . /source
RUN pip install --no-cache-dir build && python -I -m build --wheel --outdir /wheels /source

FROM nvcr.io/nvidia/tensorrt:23.10-py3
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[gpu]" && rm -r /wheels
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["trtconv"]
CMD ["--help"]
