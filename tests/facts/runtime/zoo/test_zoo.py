import copy
from functools import cache

import pytest
import torch
from torch._subclasses import FakeTensorMode

from offcert.core.errors import InputError
from offcert.runtime import zoo

# 1000 classes; the GPT is GPT-2 small with its embeddings counted once.
PUBLISHED = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
    "densenet169": 14_149_480,
    "densenet201": 20_013_928,
    "inception_v3": 23_834_568,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "alexnet": 61_100_840,
    "gpt": 124_439_808,
}


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.fixture
def one_thread():
    """Threads that wait for each other make small networks slow where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(name, shape):
    """Return a random input: tokens for a GPT, images for all others."""
    return torch.randint(128, shape) if "gpt" in name else torch.randn(shape)


@cache
def on_meta(name, **options):
    with torch.device("meta"):
        return zoo.build(name, **options)


def saved_bytes(model, tokens):
    """Return the bytes that autograd keeps, parameters and buffers left out."""
    own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    saved = {}

    def pack(tensor):
        saved.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(tokens)
    del output
    return sum(t.untyped_storage().nbytes() for key, t in saved.items() if key not in own)


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameter_counts_are_the_published_ones(name, count):
    assert parameters(on_meta(name)) == count


def test_every_network_with_a_published_count_is_tested():
    assert set(zoo.names()) - set(PUBLISHED) == {"gpt-tiny"}


# Of each family the smallest; the others are the same code, deeper.
@pytest.mark.parametrize(
    "name", ["resnet18", "resnet50", "densenet121", "inception_v3", "vgg11", "alexnet", "gpt-tiny"]
)
def test_every_network_can_be_traced_in_training_mode(name):
    model = on_meta(name)
    assert model.training
    traced = torch.fx.symbolic_trace(model)
    with torch.device("meta"):
        shape = zoo.default_shape(name)
        sample = drawn(name, (2, *shape[1:]))
        expected = (2, shape[1], model.wte.num_embeddings) if "gpt" in name else (2, 1000)
        assert traced(sample).shape == expected


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("resnet50", (1, 65)),
        ("densenet121", (2, 61)),
        ("inception_v3", (2, 75)),
        ("vgg11", (1, 32)),
        ("alexnet", (1, 63)),
    ],
)
def test_images_of_other_sizes_and_other_numbers_of_classes(name, sizes):
    batch, pixels = sizes
    with torch.device("meta"):
        model = on_meta(name, classes=7)
        assert model(drawn(name, (batch, 3, pixels, pixels))).shape == (batch, 7)


@pytest.mark.usefixtures("one_thread")
def test_dense_layers_that_join_compute_what_blocks_do():
    torch.manual_seed(0)
    blocks = zoo.build("densenet121", classes=5).double()
    layers = zoo.build("densenet121", classes=5, stages="layers").double()
    layers.load_state_dict(blocks.state_dict())
    sample = drawn("densenet121", (2, 3, 32, 32)).double()
    one, other = (network(sample) for network in (blocks, layers))
    assert torch.equal(one, other)
    one.square().sum().backward()
    other.square().sum().backward()
    for mine, theirs in zip(blocks.parameters(), layers.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-6, atol=1e-9)


def test_only_densenets_have_options_for_stages():
    asked = {name: zoo.stage_options(name) for name in zoo.names()}
    dense = {f"densenet{depth}" for depth in (121, 161, 169, 201)}
    assert {name for name, options in asked.items() if options} == dense
    assert asked["densenet121"] == {"stages": "layers"}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet18", (2, 3, 64, 64)), ("densenet121", (2, 3, 64, 64)), ("gpt-tiny", (2, 20))],
)
def test_traced_network_trains_bit_for_bit_like_the_eager_one(name, shape):
    torch.manual_seed(0)
    model = zoo.build(name)
    sample = drawn(name, shape)
    traced = torch.fx.symbolic_trace(copy.deepcopy(model))
    gradients = []
    for network in (model, traced):
        torch.manual_seed(1)
        network(sample).square().mean().backward()
        gradients.append({key: value.grad for key, value in network.named_parameters()})
    plain, other = gradients
    assert plain.keys() == other.keys()
    assert all(torch.isfinite(grad).all() for grad in plain.values())
    assert all(torch.equal(plain[key], other[key]) for key in plain)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("tokens", [20, 32])
def test_fake_tensors_save_the_bytes_that_real_gpt_training_saves(dropout, tokens):
    real = saved_bytes(zoo.build("gpt-tiny", dropout=dropout), drawn("gpt-tiny", (3, tokens)))
    with FakeTensorMode():
        fake = saved_bytes(zoo.build("gpt-tiny", dropout=dropout), drawn("gpt-tiny", (3, tokens)))
    assert real == fake > 0


def test_gpt_looks_at_no_later_token():
    model = zoo.build("gpt-tiny").eval()
    tokens = drawn("gpt-tiny", (1, 10))
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 128
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


def test_gpt_attention_is_scaled_dot_product_attention():
    model = zoo.build("gpt-tiny").eval()
    attention = model.h[0].attn
    x = torch.randn(2, 9, 32)
    query, key, value = attention.c_attn(x).view(2, 9, 3, 2, 16).permute(2, 0, 3, 1, 4)
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(
        attention(x), attention.c_proj(mixed.transpose(1, 2).reshape(2, 9, 32))
    )


def test_gpt_embeddings_stay_tied_when_copied():
    model = copy.deepcopy(zoo.build("gpt-tiny"))
    assert model.lm_head.weight is model.wte.weight


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: zoo.build("resnet19"), ['"resnet19"', "mean resnet18", "gpt-tiny"]),
        (lambda: zoo.build("resnet18", stages="layers"), ["resnet18", '"stages"', "classes"]),
        (lambda: zoo.build("alexnet", classes=0), ["classes", "0"]),
        (lambda: zoo.build("alexnet", classes=2.5), ["classes", "2.5"]),
        (lambda: zoo.build("densenet121", stages="no"), ["stages", "blocks or layers", '"no"']),
        (lambda: zoo.build("vgg11", dropout=1.5), ["dropout", "1.5"]),
        (lambda: zoo.build("gpt-tiny", heads=3), ["width", "heads", "32", "3"]),
    ],
)
def test_bad_input_gets_one_sentence_that_names_the_value(call, words):
    with pytest.raises(InputError) as error:
        call()
    message = str(error.value)
    assert all(word in message for word in words)
    assert "\n" not in message
