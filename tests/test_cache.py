"""Where things are kept between runs, and that nothing is where it must not be."""

import pathlib

import jax
import pytest

from fedjax_fraud import cache


@pytest.fixture
def no_folder_chosen():
    """As in a process of a user, who has not chosen a folder of JAX's own."""
    names = [
        "jax_compilation_cache_dir",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    ]
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("value", ["", "off"])
def test_nothing_is_kept_where_the_variable_says_so(monkeypatch, no_folder_chosen, value):
    monkeypatch.setenv(cache.VARIABLE, value)
    assert cache.cache_folder() is None
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None


def test_the_variable_names_the_folder(monkeypatch, no_folder_chosen, tmp_path):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    assert cache.cache_folder() == tmp_path / "kept"
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "kept" / "programs")
    assert (tmp_path / "kept" / "programs").is_dir()


def test_a_folder_of_jax_s_own_is_left_alone(monkeypatch, no_folder_chosen, tmp_path):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "chosen"))
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "chosen")
    assert not (tmp_path / "kept").exists()


def test_a_folder_that_cannot_be_made_is_done_without(monkeypatch, no_folder_chosen, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    cache.use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize(
    "platform, variable, folder",
    [
        ("linux", "XDG_CACHE_HOME", "{base}/fedjax_fraud"),
        ("linux", None, "{home}/.cache/fedjax_fraud"),
        ("darwin", None, "{home}/Library/Caches/fedjax_fraud"),
        ("win32", "LOCALAPPDATA", "{base}/fedjax_fraud"),
    ],
)
def test_the_user_s_cache_folder_is_where_the_system_keeps_such_things(
    monkeypatch, tmp_path, platform, variable, folder
):
    for name in (cache.VARIABLE, "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache.sys, "platform", platform)
    monkeypatch.setattr(pathlib.Path, "home", lambda: tmp_path / "home")
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "base"))
    wanted = folder.format(base=tmp_path / "base", home=tmp_path / "home")
    assert cache.cache_folder() == pathlib.Path(wanted)
