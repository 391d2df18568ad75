// A library of one TensorRT plugin, of the interface that full TensorRT 8.6 to 10 load (IPluginV2DynamicExt):
//
//     y = OPERATION (x, by), element by element, with the field `by`
//
// Compiled by g++ alone, against TensorRT's headers; NAME and OPERATION are given. The kernel is PTX, which the driver
// compiles, so that neither nvcc nor a library of CUDA's is needed.
//
//     g++ -shared -fPIC -O1 -DNAME='"Shift"' -DOPERATION='"add.f32"' -I HEADERS -I CUDA/include elementwise.cpp -ldl

#include <NvInfer.h>

#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace
{
using namespace nvinfer1;

char const* const kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry elementwise (.param .u64 px, .param .u64 py, .param .f32 pby, .param .u32 pn)
{
  .reg .pred %p; .reg .f32 %x, %by; .reg .u32 %i, %b, %d, %t, %n; .reg .u64 %px, %py, %o;
  ld.param.u64 %px, [px]; ld.param.u64 %py, [py]; ld.param.f32 %by, [pby]; ld.param.u32 %n, [pn];
  mov.u32 %b, %ctaid.x; mov.u32 %d, %ntid.x; mov.u32 %t, %tid.x;
  mad.lo.u32 %i, %b, %d, %t;
  setp.ge.u32 %p, %i, %n;
  @%p ret;
  cvta.to.global.u64 %px, %px; cvta.to.global.u64 %py, %py;
  mul.wide.u32 %o, %i, 4;
  add.u64 %px, %px, %o; add.u64 %py, %py, %o;
  ld.global.f32 %x, [%px];
  )" OPERATION R"( %x, %x, %by;
  st.global.f32 [%py], %x;
  ret;
}
)";

// The driver's interface, of which only this is needed.
using Load = int (*)(void**, void const*);
using Get = int (*)(void**, void*, char const*);
using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);

class Elementwise : public IPluginV2DynamicExt
{
public:
    explicit Elementwise(float by)
        : mBy(by)
    {
    }
    char const* getPluginType() const noexcept override
    {
        return NAME;
    }
    char const* getPluginVersion() const noexcept override
    {
        return "1";
    }
    int32_t getNbOutputs() const noexcept override
    {
        return 1;
    }
    DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t, IExprBuilder&) noexcept override
    {
        return inputs[0];
    }
    DataType getOutputDataType(int32_t, DataType const* types, int32_t) const noexcept override
    {
        return types[0];
    }
    bool supportsFormatCombination(int32_t at, PluginTensorDesc const* tensors, int32_t, int32_t) noexcept override
    {
        return tensors[at].format == TensorFormat::kLINEAR && tensors[at].type == DataType::kFLOAT;
    }
    void configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
    }
    size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const noexcept override
    {
        return 0;
    }
    int32_t initialize() noexcept override
    {
        return 0;
    }
    void terminate() noexcept override {}
    void destroy() noexcept override
    {
        delete this;
    }
    size_t getSerializationSize() const noexcept override
    {
        return sizeof(mBy);
    }
    void serialize(void* buffer) const noexcept override
    {
        std::memcpy(buffer, &mBy, sizeof(mBy));
    }
    IPluginV2DynamicExt* clone() const noexcept override
    {
        auto* made = new Elementwise(mBy);
        made->setPluginNamespace(mNamespace.c_str());
        return made;
    }
    void setPluginNamespace(char const* text) noexcept override
    {
        mNamespace = text;
    }
    char const* getPluginNamespace() const noexcept override
    {
        return mNamespace.c_str();
    }
    int32_t enqueue(PluginTensorDesc const* in, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
        void*, cudaStream_t stream) noexcept override
    {
        static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (driver == nullptr)
        {
            return 1;
        }
        static auto const load = reinterpret_cast<Load>(dlsym(driver, "cuModuleLoadData"));
        static auto const get = reinterpret_cast<Get>(dlsym(driver, "cuModuleGetFunction"));
        static auto const launch = reinterpret_cast<Launch>(dlsym(driver, "cuLaunchKernel"));
        if (mKernel == nullptr)
        {
            void* module = nullptr;
            if (load(&module, kPtx) != 0 || get(&mKernel, module, "elementwise") != 0)
            {
                return 1;
            }
        }
        uint32_t count = 1;
        for (int32_t i = 0; i < in[0].dims.nbDims; ++i)
        {
            count *= static_cast<uint32_t>(in[0].dims.d[i]);
        }
        void const* x = inputs[0];
        void* y = outputs[0];
        void* parameters[] = {&x, &y, &mBy, &count};
        return count == 0 ? 0 : launch(mKernel, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
    }

private:
    float mBy;
    std::string mNamespace;
    void* mKernel{nullptr};
};

class Creator : public IPluginCreator
{
public:
    char const* getPluginName() const noexcept override
    {
        return NAME;
    }
    char const* getPluginVersion() const noexcept override
    {
        return "1";
    }
    PluginFieldCollection const* getFieldNames() noexcept override
    {
        return &mFields;
    }
    IPluginV2* createPlugin(char const*, PluginFieldCollection const* fields) noexcept override
    {
        float by = 0;
        for (int32_t i = 0; i < fields->nbFields; ++i)
        {
            if (std::strcmp(fields->fields[i].name, "by") == 0)
            {
                by = *static_cast<float const*>(fields->fields[i].data);
            }
        }
        return new Elementwise(by);
    }
    IPluginV2* deserializePlugin(char const*, void const* data, size_t length) noexcept override
    {
        float by = 0;
        if (length != sizeof(by))
        {
            return nullptr;
        }
        std::memcpy(&by, data, sizeof(by));
        return new Elementwise(by);
    }
    void setPluginNamespace(char const* text) noexcept override
    {
        mNamespace = text;
    }
    char const* getPluginNamespace() const noexcept override
    {
        return mNamespace.c_str();
    }

private:
    PluginField mField{"by", nullptr, PluginFieldType::kFLOAT32, 1};
    PluginFieldCollection mFields{1, &mField};
    std::string mNamespace;
};
} // namespace

// What TensorRT looks for in a library.
extern "C" void setLoggerFinder(ILoggerFinder*) {}

extern "C" IPluginCreator* const* getPluginCreators(int32_t& count)
{
    static Creator creator;
    static IPluginCreator* const all[] = {&creator};
    count = 1;
    return all;
}
