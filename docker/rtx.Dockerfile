# trtconv with TensorRT-RTX, which builds engines without a GPU. From the root of the repository:
#   docker build -f docker/rtx.Dockerfile -t trtconv:rtx .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" trtconv:rtx build model.onnx
# With a GPU, to verify and time engines: docker run --gpus all ...

FROM python:3.12-slim AS wheel
COPY . /source
RUN pip install --no-cache-dir build && python -I -m build --wheel --outdir /wheels /source

FROM python:3.12-slim
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[gpu]" && rm -r /wheels
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["trtconv"]
CMD ["--help"]
