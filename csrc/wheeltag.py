"""Names the wheel: nothing in it is compiled for one version of Python, so it serves all."""

from __future__ import annotations

from setuptools.command.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """A wheel whose libraries know of the system alone."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]
